-- Reads the database clock, in milliseconds.
select everytick_now();
