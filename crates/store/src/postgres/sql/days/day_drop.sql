-- Drops the detached table of day $1 (days since 1970). Scans no table.
select everytick_drop_day(date '1970-01-01' + $1::integer);
