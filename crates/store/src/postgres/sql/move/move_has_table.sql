-- Whether table $1 exists.
select to_regclass($1) is not null;
