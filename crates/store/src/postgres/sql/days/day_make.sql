-- Creates the table of day $1 (days since 1970) and attaches it, or attaches it again. Scans no table.
select everytick_make_day(date '1970-01-01' + $1::integer);
