-- Records move $1 from source $2, whose runs have day tables from id $3 on, and its parts $4. Primary keys: moves, move_parts.
with begun as (
    insert into moves (id, source, days_from, started_at) values ($1, $2, $3, everytick_now()) returning id
)
insert into move_parts (move, part) select begun.id, n.part from begun, unnest($4::text[]) as n (part);
