-- Lists the transactions in progress that may have inserted audit rows. An insert takes this lock before it takes a number, and
-- PostgreSQL releases it after the transaction's rows are visible.
select distinct l.virtualtransaction
  from pg_locks l
 where l.locktype = 'relation' and l.mode = 'RowExclusiveLock' and l.granted
   and l.relation = 'audit'::regclass
   and l.database = (select oid from pg_database where datname = current_database());
