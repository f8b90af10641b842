-- Whether there is a table of that name here.
select to_regclass($1) is not null;
