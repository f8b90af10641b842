-- The same of those that nobody else holds: for whoever holds others already, and must not wait out of order. Key: epochs.
select job from epochs where job = any($1) order by job for no key update skip locked;
