-- Protects table $1, for `everytick migrate --app-role`. Scans no table.
select everytick_protect_table($1::regclass);
