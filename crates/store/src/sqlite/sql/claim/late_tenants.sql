-- Lists the tenants that have late runs waiting. Index: waiting_late, probed once per tenant, each from the tenant before.
with recursive found (tenant) as (
    select min(tenant) from waiting indexed by waiting_late where late = 1 and queue is null
     union all
    select (select min(w.tenant) from waiting w indexed by waiting_late where w.late = 1 and w.queue is null and w.tenant > found.tenant)
      from found
     where found.tenant is not null
)
select tenant from found where tenant is not null;
