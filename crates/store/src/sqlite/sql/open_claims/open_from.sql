-- Reads open_from of incarnation ?1: its claims on runs with lower ids are in open_claims. Primary key: leases.
select open_from from leases where incarnation = ?1;
