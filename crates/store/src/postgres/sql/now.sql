-- The database's clock.
select everytick_now();
