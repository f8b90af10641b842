-- Definitions without what has its default value. Only nodes that say so can read them, and they are written when all who
-- live do; see src/postgres/short.rs.
alter table leases add column reads_short boolean not null default false;

-- Neither table's rows are ever rewritten in place: an index names what a cursor's raise and a change of an epoch change. So the
-- room that was kept free in their pages gained nothing, and was a third of a cursor and a fifth of an epoch.
alter table epochs set (fillfactor = 100);
alter table cursors set (fillfactor = 100);
