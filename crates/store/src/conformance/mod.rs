//! The conformance suite: one function per rule that every store must follow. A store's tests open it empty, and
//! [`conformance_suite!`] makes a test of each rule. Rules read and write only through [`Store`].

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::missing_panics_doc, reason = "these are tests")]

pub mod accepted;
pub mod alone;
pub mod backfills;
pub mod calendars;
pub mod cancels;
pub mod claims;
pub mod creates;
pub mod cursors;
pub mod edits;
pub mod facts;
pub mod flows;
pub mod homes;
pub mod loads;
pub mod nodes;
pub mod old_claims;
pub mod partitions;
pub mod pruning;
pub mod queue_previous;
pub mod queues;
pub mod ranges;
pub mod reads;
pub mod redrives;
pub mod repairs;
pub mod requests;
pub mod server;
pub mod settles;
pub mod sharing;
pub mod ticks;

use std::{any::Any, collections::BTreeMap, fmt, sync::Arc};

use everytick_domain::{
    edit::Change,
    ids::{Cause, Epoch, Fence, Incarnation, JobId, RunId, TenantId, Version},
    job::{Job, JobSpec, Overlap},
    partition::PartitionSet,
    plan::{Fate, SkipRange, TickRow},
    run::{Settlement, SkipReason, Verdict},
    schedule::{ScheduleSpec, Timing},
    target::{Command, ShellTarget, TargetSpec},
    time::{DbTime, Span},
};
use uuid::Uuid;

use crate::{
    Actor, ClaimedRun, Created, EditJob, Edited, JobRef, JobTicks, Lease, Limits, LoadedJob, ManualClock, NewJob,
    NewRun, NodeInfo, Raise, RangeAnswer, RangePlan, RecordRow, Result, RowAnswer, RunRecord, Settle, SettleAnswer,
    Store, TakeOver, Waiting, WallClock,
};

/// The limits with which a store is opened for the suite: small, so that tests reach them.
pub const LIMITS: Limits = Limits {
    jobs_per_tenant_max: 20,
    open_requests_per_job_max: 3,
    waiting_per_job_max: 30,
    calendars_per_tenant_max: 5,
    runs_searched_max: 8,
    backlog_batch_max: 10,
};
/// The initial time. Every job of the suite has ticks at whole ten seconds.
pub const START: DbTime = DbTime::from_millis(1_794_787_200_000);
pub const TENANT: TenantId = TenantId::DEFAULT;
pub const OTHER_TENANT: TenantId = TenantId::from_raw(2);
pub const TTL: Span = Span::seconds(15);

/// Makes a `#[test]` of every rule, for a store with one process (`alone`) or shared by nodes (`shared`). `$open` is the path
/// of an `async fn(Arc<dyn WallClock>, Limits) -> (Arc<dyn Store>, Box<dyn Any + Send + Sync>)`. It returns an empty store and
/// a value that must live as long as the store.
#[macro_export]
macro_rules! conformance_suite {
    (@group $open:path, $group:ident: $($rule:ident),* $(,)?) => {
        mod $group {
            $(
                #[test]
                fn $rule() {
                    $crate::conformance::hold_to(
                        || Box::pin($crate::conformance::Bench::open($open)),
                        |bench| Box::pin($crate::conformance::$group::$rule(bench)),
                    );
                }
            )*
        }
    };
    // A store that one process uses alone.
    ($open:path, alone) => {
        $crate::conformance_suite! { @group $open, alone:
            joining_ends_the_leases_of_other_nodes,
        }
        $crate::conformance_suite! { @every $open }
    };
    // A store that several nodes share.
    ($open:path, shared) => {
        $crate::conformance_suite! { @group $open, sharing:
            joining_does_not_end_the_leases_of_other_nodes,
            a_partition_has_one_owner,
            taking_over_the_partitions_of_an_expired_lease_raises_their_fences,
            the_partitions_of_a_node_that_left_can_be_acquired,
            a_take_over_fences_the_dead_node,
            raising_the_fence_of_a_lease_keeps_the_fences_of_others,
            a_returning_node_keeps_partitions_that_were_not_taken_over,
            a_retiring_node_releases_its_partitions_and_keeps_its_claims,
            a_newer_process_of_the_same_name_replaces_the_older_one,
            a_second_process_with_the_name_of_a_live_node_is_refused,
            an_expired_lease_frees_its_name,
            a_lease_written_by_a_fast_clock_lasts_no_longer_than_its_ttl,
            a_delegated_run_is_claimed_only_by_its_node,
            a_delegated_run_counts_as_in_progress,
            a_search_for_delegated_runs_skips_full_jobs_and_returns_the_oldest_first,
            a_run_delegated_to_a_dead_or_retiring_node_waits_again_unspent,
            a_run_is_delegated_only_to_a_live_node_and_only_by_the_owner,
            only_the_owner_releases_a_partition,
            the_lost_claims_of_one_node_are_found_by_another,
            the_claims_of_a_live_node_are_not_lost,
            two_nodes_record_a_tick_once,
            a_run_is_claimed_by_one_of_two_nodes,
            only_the_due_runs_named_are_handed_over,
            no_run_is_handed_to_a_node_that_left_was_replaced_or_is_about_to_stop,
            a_run_that_was_handed_to_a_living_node_stays_there,
            a_node_leaves_or_stops_alone,
            a_run_is_claimed_only_in_the_partitions_named,
            a_node_that_has_compared_its_claims_raises_no_bound_of_another_node,
        }
        $crate::conformance_suite! { @group $open, homes:
            the_first_job_of_a_region_claims_a_block_and_later_jobs_use_it,
            each_region_has_its_own_block_and_one_region_too_many_is_refused,
            a_refused_job_claims_no_block,
            regions_claimed_at_the_same_time_get_different_blocks,
            changing_the_home_moves_the_job_and_its_waiting_runs,
            the_last_ticks_before_a_move_wait_in_the_new_partition,
            a_run_released_after_a_move_waits_in_the_new_partition,
            a_move_is_a_change_in_the_old_and_the_new_partition,
            an_edit_that_keeps_the_home_keeps_the_partition,
        }
        $crate::conformance_suite! { @every $open }
    };
    (@every $open:path) => {
        $crate::conformance_suite! { @group $open, nodes:
            the_store_uses_the_given_clock,
            a_renewal_records_the_status_of_the_node,
            a_lease_is_valid_until_it_expires,
            a_renewal_extends_the_lease,
            an_expired_lease_cannot_be_renewed,
            a_new_incarnation_has_a_higher_fence_and_ends_the_old_one,
            after_raising_the_fence_the_old_fence_is_rejected,
            the_fence_of_a_lost_lease_cannot_be_raised,
            only_the_node_and_incarnation_of_a_lease_can_raise_its_fence,
            a_node_that_left_has_no_lease,
            lease_fences_increase_even_when_the_clock_goes_back,
            the_cluster_lists_nodes_with_their_join_and_renewal_data,
            a_node_that_left_or_was_replaced_is_not_listed,
        }
        $crate::conformance_suite! { @group $open, partitions:
            the_partition_of_a_job_follows_from_its_id,
            acquiring_a_free_partition_raises_its_fence,
            acquiring_an_owned_partition_again_keeps_its_fence,
            an_unknown_partition_is_not_acquired,
            only_the_named_partitions_are_acquired_and_released,
            a_partition_of_another_incarnation_is_not_released,
            a_released_partition_is_free,
            a_node_that_leaves_releases_its_partitions,
            a_lost_lease_acquires_and_releases_nothing,
            a_new_incarnation_acquires_the_partitions_of_the_old_one,
            the_horizon_has_only_jobs_of_the_requested_partitions,
            changes_come_only_from_the_requested_partitions,
            waiting_runs_come_only_from_the_requested_partitions,
        }
        $crate::conformance_suite! { @group $open, ticks:
            a_tick_is_recorded_once,
            a_tick_after_the_clock_is_early_and_is_not_written,
            a_tick_that_the_cursor_has_passed_is_stale,
            a_tick_planned_under_another_epoch_is_stale,
            a_tick_of_an_unknown_job_is_stale,
            a_tick_of_a_paused_job_is_stale,
            a_run_born_claimed_is_the_first_attempt_of_its_node,
            a_run_that_is_not_born_claimed_waits,
            a_run_that_catch_up_chose_waits_as_late,
            a_run_is_due_at_its_tick_plus_jitter,
            a_skip_is_terminal_and_has_its_reason,
            a_batch_answers_for_each_row_in_its_order,
            a_tick_named_twice_in_a_batch_is_recorded_once,
            a_lost_lease_records_nothing,
            an_empty_batch_is_recorded,
            a_thousand_jobs_are_recorded_in_one_batch,
            rows_of_several_ticks_of_one_job_are_recorded_in_order,
            batches_of_every_kind_need_the_lease_the_epoch_and_the_cursor,
            a_batch_with_several_ticks_of_a_job_records_each_under_its_own_plan,
            of_a_batch_only_what_was_not_born_claimed_waits,
        }
        $crate::conformance_suite! { @group $open, loads:
            the_horizon_returns_jobs_by_cursor_in_pages,
            the_horizon_has_no_jobs_without_ticks,
            the_horizon_needs_a_lease,
            a_loaded_job_has_its_open_runs_and_no_others,
            a_load_reads_as_many_waiting_runs_as_the_policy_needs,
            a_load_reads_runs_between_two_attempts_before_others,
            waiting_runs_of_a_queue_job_are_counted_but_not_read,
            a_loaded_job_has_its_last_recorded_tick_from_the_cursor_on,
            a_claim_of_a_dead_incarnation_is_still_an_open_run,
            deleted_jobs_are_loaded_and_unknown_jobs_are_not,
            changes_include_created_and_edited_jobs,
            a_new_job_whose_first_tick_is_far_ahead_is_found_by_the_horizon,
            changes_come_in_pages,
            a_reader_of_changes_that_is_up_to_date_gets_nothing_new,
        }
        $crate::conformance_suite! { @group $open, ranges:
            a_range_is_written_with_the_cursor_that_passes_it_and_raises_the_epoch,
            a_range_is_stale_when_the_cursor_has_changed,
            a_range_is_stale_when_the_epoch_has_changed,
            a_range_that_ends_in_the_future_is_stale,
            a_range_is_stale_when_one_of_its_ticks_has_a_row,
            a_triggered_run_does_not_make_a_range_stale,
            a_range_of_an_unknown_job_is_stale,
            a_lost_lease_records_no_range,
            ticks_planned_before_a_range_are_stale_after_it,
            a_range_may_end_the_schedule,
        }
        $crate::conformance_suite! { @group $open, cursors:
            a_cursor_is_raised,
            a_cursor_is_never_lowered,
            a_cursor_is_not_raised_under_another_epoch,
            a_cursor_raised_to_no_next_tick_stays_there,
            a_batch_of_raises_returns_the_jobs_whose_cursor_reached_the_value,
        }
        $crate::conformance_suite! { @group $open, repairs:
            overdue_jobs_come_in_cursor_order_without_a_lease,
            a_walk_returns_every_job_that_is_not_deleted,
            a_ledger_has_the_ticks_and_ranges_of_its_window,
            a_repair_records_a_missing_tick_that_the_cursor_has_passed,
            a_repair_does_not_change_recorded_ticks,
            a_repair_without_ticks_only_raises_the_epoch,
            a_repair_under_another_epoch_does_nothing,
            a_tick_that_the_cursor_has_not_passed_is_not_repaired,
            a_lost_lease_repairs_nothing,
        }
        $crate::conformance_suite! { @group $open, claims:
            on_time_runs_come_first_then_by_priority_then_the_oldest,
            late_runs_rotate_between_tenants,
            a_run_that_is_not_due_is_neither_returned_nor_claimed,
            runs_of_busy_jobs_are_skipped_except_forced_runs_and_retries,
            a_search_for_waiting_runs_obeys_its_limit,
            a_lost_lease_reads_no_waiting_runs,
            a_claim_raises_fence_and_attempt_and_removes_the_run_from_waiting,
            a_run_is_claimed_once,
            a_node_can_check_which_claims_it_still_has,
            claims_are_returned_in_the_requested_order,
            a_lost_lease_claims_nothing,
            unknown_and_ended_runs_are_not_claimed,
            a_claim_returns_the_payload_of_the_run,
            an_incarnation_can_load_its_claims,
            the_claims_of_an_ended_lease_are_lost,
            a_lost_claim_on_an_old_run_is_found,
            a_node_that_left_loses_its_claims,
            a_live_nodes_own_claims_are_not_lost,
            a_search_for_lost_claims_obeys_its_limit,
            a_settled_run_is_no_longer_lost,
            a_renewal_may_raise_the_bound_past_ended_runs,
        }
        $crate::conformance_suite! { @group $open, old_claims:
            an_old_claim_is_listed_before_the_bound_passes_it,
            the_bound_does_not_pass_unlisted_claims,
            a_claim_made_after_the_listing_is_listed_by_the_renewal,
            a_claim_below_the_bound_is_listed_and_does_not_move_the_bound,
            a_repeated_tick_does_not_change_the_listed_claim_of_another_node,
            a_renewal_with_an_older_fence_does_not_change_a_listed_claim,
            a_node_lists_no_claims_of_other_nodes,
            a_renewal_does_not_raise_the_bound_of_another_lease,
            an_old_claim_that_ended_is_not_listed_any_more,
            cancelling_a_job_keeps_the_old_claims_of_other_jobs,
            an_old_claim_counts_for_overlap,
            listed_claims_come_in_pages,
            a_lost_lease_lists_nothing,
            an_old_claim_is_not_pruned,
            a_listed_claim_on_a_run_that_is_over_does_not_keep_the_run,
        }
        $crate::conformance_suite! { @group $open, accepted:
            an_accepted_run_outlives_its_node_and_is_settled_by_its_fence,
            only_a_current_claim_of_the_incarnation_is_accepted,
            a_claim_of_another_incarnation_is_not_accepted,
            a_lost_lease_accepts_nothing,
            an_accepted_run_counts_for_overlap,
            an_accepted_run_can_be_superseded_and_cancelled,
            an_accepted_run_of_an_edited_job_is_redelivered_to_the_new_target,
            an_accepted_run_times_out_without_a_report,
            an_accepted_run_is_never_pruned,
            an_accepted_run_is_not_ended_by_a_workers_success,
        }
        $crate::conformance_suite! { @group $open, settles:
            a_success_ends_the_run_with_its_output,
            a_failure_ends_the_run_with_its_error,
            a_cancelled_outcome_ends_the_run_as_cancelled,
            an_old_fence_changes_nothing,
            an_ended_run_cannot_be_settled_again,
            a_waiting_run_cannot_be_settled,
            a_run_is_not_released_under_an_old_fence,
            an_unknown_run_cannot_be_settled,
            a_retry_waits_until_it_is_due_and_keeps_the_failed_attempt,
            a_lost_attempt_is_recorded_and_the_run_waits_at_once,
            an_unsent_claim_is_released_without_using_an_attempt,
            a_retry_that_is_released_unsent_keeps_its_earlier_attempts,
            a_batch_answers_for_each_settlement,
            a_batch_of_terminal_settlements_answers_for_each,
            a_batch_records_the_result_of_each_run_separately,
            a_run_named_twice_is_settled_by_the_first,
            a_thousand_runs_are_settled_in_one_batch,
            a_settlement_needs_no_lease,
            attempts_are_listed_in_order,
            the_attempt_in_progress_is_listed_without_an_outcome,
            the_fence_of_a_claim_increases_even_when_the_clock_goes_back,
        }
        $crate::conformance_suite! { @group $open, queues:
            nodes_do_not_see_runs_of_queue_jobs,
            a_worker_claims_a_run_with_a_raised_fence_and_a_lease,
            higher_priority_goes_first_and_waiting_time_counts,
            a_claim_obeys_its_limit_and_takes_only_due_runs,
            a_job_that_may_not_overlap_has_one_claimed_run_at_a_time,
            claims_obey_max_concurrent_of_the_job,
            a_run_that_a_node_has_claimed_counts_too,
            a_busy_job_does_not_block_other_jobs,
            a_run_claimed_by_a_worker_is_an_open_run_of_its_job,
            a_heartbeat_extends_the_claim_unless_its_fence_is_old,
            a_heartbeat_and_a_log_affect_only_the_named_run,
            a_settlement_ends_the_claim_and_its_repeat_is_stale,
            a_worker_learns_of_a_cancel_at_its_next_heartbeat,
            a_pause_with_cancel_ends_runs_that_workers_have_claimed,
            cancelling_a_job_keeps_worker_claims_of_other_jobs,
            the_run_of_a_lost_worker_returns_to_the_queue,
            a_success_is_accepted_only_from_the_current_claim,
            a_large_claim_misses_no_run,
            a_claim_never_skips_an_older_run_of_a_serial_job,
            a_large_claim_keeps_the_order_of_a_serial_job,
            a_run_times_out_despite_heartbeats,
            a_log_grows_and_keeps_its_end,
            a_cancelled_run_keeps_the_log_of_its_worker,
            a_log_is_stored_only_on_its_own_run,
            waiting_runs_follow_their_job_to_another_target,
            claims_obey_the_concurrency_limit_of_the_queue,
            claims_obey_the_rate_limit_of_the_queue,
            a_claim_uses_only_the_rate_of_its_own_queue,
            changing_the_target_of_a_job_does_not_move_other_jobs,
            claims_obey_the_limit_per_key,
            a_redelivered_run_keeps_its_key,
            a_busy_key_does_not_block_other_keys,
            a_poll_returns_the_queues_with_due_runs,
            queues_are_listed_with_their_counts_in_pages,
            a_worker_cannot_see_runs_of_another_tenant,
            a_run_claimed_by_a_worker_is_never_pruned,
        }
        $crate::conformance_suite! { @group $open, queue_previous:
            a_claim_supersedes_older_runs,
            a_due_run_supersedes_runs_that_workers_have_claimed,
            a_run_that_is_not_due_supersedes_nothing,
        }
        $crate::conformance_suite! { @group $open, creates:
            a_new_job_starts_at_its_first_tick_after_now,
            a_home_region_is_stored_until_an_edit_changes_it,
            a_disabled_job_and_one_without_a_schedule_have_no_cursor,
            a_job_name_is_unique,
            a_job_name_is_unique_in_a_batch,
            tenants_may_have_jobs_of_the_same_name,
            the_quota_is_enforced_and_a_deleted_job_does_not_count,
            a_refused_job_does_not_stop_the_others_of_its_batch,
            an_at_in_the_past_is_refused_with_the_time_of_the_store,
            an_at_that_has_just_passed_is_accepted,
            a_schedule_that_never_fires_is_refused_unless_disabled,
            a_repeated_request_returns_the_same_job,
            a_key_reused_for_another_job_is_refused,
            a_key_belongs_to_its_tenant,
            a_refused_request_does_not_use_its_key,
            a_new_job_has_an_audit_row,
            jobs_created_together_have_an_audit_row_each,
            a_job_is_read_as_it_was_created,
        }
        $crate::conformance_suite! { @group $open, edits:
            a_pause_records_the_due_ticks_and_no_later_tick,
            an_edit_or_a_resume_cancels_no_open_run,
            a_resumed_job_continues_after_the_pause,
            an_edit_never_gets_the_epoch_of_an_earlier_edit_that_was_lost,
            a_deleted_job_is_not_found_and_frees_its_name,
            a_new_definition_applies_after_x,
            ticks_planned_before_an_edit_are_stale_after_it,
            an_edit_with_a_wrong_version_is_refused,
            a_job_can_be_renamed_but_not_to_a_name_that_is_taken,
            an_edit_that_changes_nothing_writes_nothing,
            an_unknown_job_and_one_of_another_tenant_cannot_be_edited,
            an_edit_to_an_at_that_has_passed_is_refused,
            an_edit_to_an_at_that_has_just_passed_records_its_tick,
            an_edit_to_an_at_that_is_already_recorded_is_refused,
            x_is_not_before_the_last_recorded_tick_when_the_clock_goes_back,
            ticks_already_recorded_are_not_recorded_again_by_an_edit,
            an_edit_skips_due_ticks_that_overlap_an_open_run,
            an_edit_records_a_long_backlog_as_ranges,
            a_pause_does_not_change_open_runs,
            a_pause_with_cancel_ends_open_runs_and_returns_the_claimed_ones,
            a_delete_with_cancel_ends_open_runs,
            an_edit_has_an_audit_row_that_names_x,
            a_pause_keeps_its_note,
        }
        $crate::conformance_suite! { @group $open, calendars:
            a_calendar_is_created_read_listed_and_deleted,
            deleting_a_calendar_does_not_change_others,
            putting_an_unchanged_calendar_makes_no_new_version,
            a_put_with_a_wrong_version_is_refused,
            calendars_per_tenant_are_limited,
            a_job_that_uses_an_unknown_calendar_is_refused,
            a_loaded_job_has_its_calendars,
            a_new_version_raises_the_epochs_of_the_jobs_that_use_it,
            ticks_planned_under_an_old_version_are_stale,
            an_edit_applies_to_each_tick_the_calendar_version_of_its_instant,
            versions_keep_their_order_when_the_clock_goes_back,
            only_the_newest_versions_are_kept,
            a_calendar_that_a_job_uses_cannot_be_deleted,
            calendars_do_not_cross_tenants,
            calendars_have_audit_rows,
        }
        $crate::conformance_suite! { @group $open, requests:
            a_triggered_run_waits_and_is_due_at_once,
            a_request_that_overlaps_an_open_run_is_recorded_as_skipped,
            a_forced_request_waits_although_a_run_is_open,
            a_request_obeys_max_concurrent,
            requests_beyond_the_backlog_limit_are_refused,
            a_paused_job_can_be_triggered,
            a_repeated_request_returns_the_same_run,
            a_key_reused_for_another_run_is_refused,
            an_unknown_deleted_or_foreign_job_cannot_be_triggered,
            a_waiting_run_is_cancelled,
            a_claimed_run_is_cancelled_and_later_settlements_are_stale,
            an_ended_run_cannot_be_cancelled,
            a_range_cannot_be_cancelled,
            an_unknown_or_foreign_run_cannot_be_cancelled,
            requests_have_audit_rows,
        }
        $crate::conformance_suite! { @group $open, cancels:
            a_superseded_run_is_cancelled_with_a_raised_fence_and_a_reason,
            an_ended_run_is_not_superseded,
            a_lost_lease_supersedes_nothing,
            a_cancelled_run_keeps_the_output_of_its_last_attempt,
            an_output_is_stored_only_on_the_named_run,
            a_succeeded_run_keeps_its_own_output,
            cancelling_a_job_cancels_all_its_open_runs,
            an_unknown_deleted_or_foreign_job_cannot_be_cancelled,
            under_queue_requests_wait_up_to_the_limit,
            under_queue_a_run_between_two_attempts_does_not_count_as_waiting,
            under_queue_a_request_makes_earlier_plans_stale,
            under_cancel_previous_requests_wait,
        }
        $crate::conformance_suite! { @group $open, redrives:
            each_failed_run_gets_one_new_run,
            a_failed_run_is_redriven_once,
            under_cancel_previous_failed_runs_are_redriven_one_at_a_time,
            a_redrive_obeys_its_period_and_limit_and_returns_where_to_continue,
            a_dry_run_of_a_redrive_creates_nothing,
            a_redriven_run_has_the_payload_of_the_failed_run,
            a_redrive_obeys_the_limit_of_waiting_requests,
            a_redrive_has_audit_rows,
            under_queue_a_redrive_raises_the_epoch,
            an_unknown_or_foreign_job_cannot_be_redriven,
        }
        $crate::conformance_suite! { @group $open, backfills:
            a_new_backfill_has_no_runs_and_returns_its_ticks,
            backfilled_runs_wait_as_late_and_do_not_change_ticks_or_cursor,
            a_backfill_is_done_after_all_its_runs_ended_and_counts_their_states,
            a_job_that_may_not_overlap_gets_one_backfilled_run_at_a_time,
            a_backfill_obeys_its_rate_and_the_limit_of_open_runs,
            a_backfill_creates_runs_in_the_requested_order,
            an_edit_does_not_change_the_ticks_of_a_backfill,
            a_cancelled_backfill_creates_no_more_runs,
            a_cancel_does_not_end_another_backfill,
            a_cancel_does_not_change_a_backfill_that_is_done,
            a_pause_does_not_stop_a_backfill_but_a_delete_does,
            a_repeated_request_returns_the_same_backfill,
            running_backfills_per_job_are_limited,
            an_impossible_backfill_is_refused_with_its_field,
            runs_for_old_ticks_have_recent_ids,
            a_backfill_that_takes_too_long_is_ended_with_a_note,
            a_lost_lease_creates_no_backfilled_runs,
            backfills_are_loaded_by_the_partition_of_their_job,
            backfills_are_listed_newest_first_in_pages_and_stay_with_their_tenant,
            backfills_have_audit_rows,
            an_ended_backfill_is_pruned,
            a_cancelled_backfill_is_kept_until_its_open_runs_are_counted,
            an_explanation_lists_the_backfilled_runs_of_the_instant,
        }
        $crate::conformance_suite! { @group $open, facts:
            the_row_and_the_range_of_an_instant_are_loaded,
            changes_are_listed_oldest_first_with_the_previous_definition,
            a_deleted_job_is_explained_by_its_id_and_by_its_name,
            the_default_instant_is_the_last_expected_tick_of_the_job,
            calendars_of_past_definitions_are_loaded,
            facts_do_not_cross_tenants,
        }
        $crate::conformance_suite! { @group $open, reads:
            a_job_is_read_by_name_and_by_id_with_its_last_run,
            jobs_are_listed_by_name_in_pages,
            a_page_of_jobs_is_limited_in_bytes_and_the_next_page_continues,
            deleted_jobs_are_not_listed,
            jobs_are_filtered,
            runs_and_ranges_are_listed_together_newest_first_in_pages,
            runs_are_filtered_by_job_state_and_time,
            failed_runs_are_listed_however_many_other_runs_are_between,
            a_retry_or_a_stale_settlement_is_not_listed_as_a_failure,
            a_list_by_state_reads_a_bounded_number_of_runs_per_page,
            an_output_is_returned_with_its_run_but_not_in_lists,
            a_range_is_read_by_its_id,
            runs_show_the_present_name_of_their_job,
            the_audit_trail_is_read_newest_first_in_pages,
            unknown_runs_are_not_found,
            nothing_crosses_tenants,
        }
        $crate::conformance_suite! { @group $open, flows:
            a_diamond_runs_each_job_once,
            two_parents_that_end_in_one_batch_make_one_child,
            a_skip_propagates_with_its_reason,
            a_failed_root_skips_its_descendants,
            every_way_of_ending_a_run_advances_its_flow,
            a_retry_does_not_advance_the_flow,
            a_run_of_a_job_without_children_opens_no_flow,
            a_child_can_have_its_own_ticks_and_requests,
            a_child_that_is_paused_busy_or_deleted_is_skipped,
            a_child_under_queue_waits_and_raises_the_epoch_of_its_job,
            a_flow_keeps_the_graph_that_it_was_opened_with,
            a_payload_uses_the_outputs_of_its_parents,
            a_payload_uses_the_error_of_a_parent,
            a_skip_with_reason_error_fails_the_flow_and_can_be_rerun,
            a_run_outside_a_flow_cannot_refer_to_parents,
            a_flow_that_starts_many_jobs_does_so_in_several_transactions,
            giving_up_a_flow_skips_its_next_jobs_with_reason_error,
            parents_are_resolved_when_a_job_is_defined,
            jobs_created_together_may_depend_on_each_other,
            a_cycle_is_refused_and_named,
            a_job_with_children_cannot_be_deleted_or_renamed,
            cancelling_a_flow_cancels_its_open_runs_and_starts_nothing_more,
            cancelling_a_flow_does_not_change_other_flows_and_runs,
            a_flow_may_be_cancelled_while_its_root_is_open,
            a_rerun_creates_one_new_flow_of_the_failed_jobs,
            a_rerun_with_the_same_key_is_created_once,
            an_old_flow_is_pruned_with_its_runs,
            an_old_flow_is_pruned_although_another_run_of_its_instant_is_kept,
            a_running_flow_is_not_pruned,
            a_flow_with_a_run_claimed_by_a_node_is_not_pruned,
            a_flow_with_a_run_claimed_by_a_worker_is_not_pruned,
            a_flow_is_kept_while_one_of_its_runs_is_kept,
            a_flow_is_kept_while_its_root_is_kept,
            a_running_rerun_is_not_pruned,
            a_redriven_run_opens_its_own_flow,
            a_run_outside_every_flow_leaves_no_step,
            a_run_that_ends_leaves_a_step_in_its_own_flow_alone,
            a_step_that_opens_no_flow_is_forgotten_alone,
            an_old_flow_goes_and_a_newer_one_stays,
            a_flow_that_goes_on_keeps_only_its_own_runs,
        }
        $crate::conformance_suite! { @group $open, pruning:
            old_runs_are_pruned_except_the_last_of_each_job,
            open_runs_are_never_pruned,
            runs_that_ended_after_the_limit_are_kept,
            a_tick_that_the_cursor_has_not_passed_is_kept,
            a_pruned_tick_is_never_recorded_again,
            pruning_obeys_its_limit,
            attempts_are_pruned_with_their_run,
            a_deleted_job_is_pruned_after_its_runs_have_ended,
            only_old_idempotency_keys_are_pruned,
            only_old_audit_rows_are_pruned,
            an_old_run_that_ended_later_stays,
            attempts_and_failures_of_runs_that_stay_are_left,
            old_ranges_go_and_newer_ones_stay,
            a_range_that_the_cursor_has_not_passed_stays,
            a_deleted_job_stays_while_a_range_of_it_is_left,
            a_deleted_job_goes_alone,
        }
    };
}

type Boxed<'a, T> = std::pin::Pin<Box<dyn Future<Output = T> + 'a>>;

/// Runs one rule against an opened store. Not generic, so it is compiled once and not once per rule and store, which took
/// minutes.
pub fn hold_to(open: fn() -> Boxed<'static, Bench>, rule: for<'a> fn(&'a Bench) -> Boxed<'a, ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let bench = open().await;
        rule(&bench).await;
    });
}

/// An empty store, its clock, and helpers for steps that most rules need.
pub struct Bench {
    pub store: Arc<dyn Store>,
    pub clock: Arc<ManualClock>,
    _kept: Box<dyn Any + Send + Sync>,
}

impl fmt::Debug for Bench {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Bench").finish_non_exhaustive()
    }
}

/// The instant `seconds` after [`START`].
#[must_use]
pub fn s(seconds: i64) -> DbTime {
    DbTime::from_millis(START.millis() + seconds * 1_000)
}

#[must_use]
pub fn actor() -> Actor {
    Actor("tester".into())
}

#[must_use]
pub fn by_name(name: &str) -> JobRef {
    JobRef::Name(name.into())
}

#[must_use]
pub fn incarnation(n: u128) -> Incarnation {
    Incarnation::from_uuid(Uuid::from_u128(n))
}

/// A job with a tick every ten seconds, overlap `skip` and catch-up `latest`.
#[must_use]
pub fn spec(name: &str) -> JobSpec {
    let command = Command::Argv(vec!["true".into()]);
    let target = TargetSpec::Shell(ShellTarget { command, env: BTreeMap::new(), workdir: None });
    let schedule = Some(schedule(Timing::Every { every: Span::seconds(10) }));
    JobSpec { schedule, ..JobSpec::new(name, target) }
}

#[must_use]
pub fn schedule(timing: Timing) -> ScheduleSpec {
    ScheduleSpec { timing, starts_at: None, ends_at: None, jitter: None, exclude: Vec::new() }
}

/// The same with overlap `allow`.
#[must_use]
pub fn overlapping(name: &str) -> JobSpec {
    JobSpec { overlap: Overlap::Allow, ..spec(name) }
}

/// An id derived from the name, so that a failure is reproducible.
#[must_use]
pub fn job_id(tenant: TenantId, name: &str) -> JobId {
    let mut bytes = [0; 16];
    for (place, byte) in name.bytes().enumerate() {
        bytes[place % 12] ^= byte.rotate_left(u32::try_from(place / 12).unwrap());
    }
    bytes[12..].copy_from_slice(&tenant.raw().to_be_bytes());
    JobId::from_uuid(Uuid::from_bytes(bytes))
}

/// The epoch of a new job after it was raised once at this instant.
#[must_use]
pub fn raised(at: DbTime) -> i64 {
    Epoch::from_raw(1).raised(at).raw()
}

/// The row of a job's tick at `seconds` after [`START`].
#[must_use]
pub fn tick(job: &Job, seconds: i64, fate: Fate) -> RecordRow {
    let at = s(seconds);
    let tick = TickRow { id: RunId::of(job.id, Cause::Tick(at)), at, due_at: at, fate };
    RecordRow { tick, born_claimed: false }
}

#[must_use]
pub fn born(job: &Job, seconds: i64) -> RecordRow {
    RecordRow { born_claimed: true, ..tick(job, seconds, Fate::Run) }
}

#[must_use]
pub fn ticks(job: &Job, epoch: i64, rows: Vec<RecordRow>) -> JobTicks {
    let (epoch, priority) = (Epoch::from_raw(epoch), job.spec.priority);
    let (job_id, tenant, partition, key) = (job.id, job.tenant, job.partition, job.spec.key_of(None));
    JobTicks { job: job_id, tenant, partition, epoch, priority, key, rows }
}

#[must_use]
pub fn range(job: &Job, epoch: i64, from: i64, to: i64) -> RangePlan {
    let count = u64::try_from((to - from) / 10 + 1).unwrap();
    RangePlan {
        job: job.id,
        tenant: job.tenant,
        epoch: Epoch::from_raw(epoch),
        cursor_was: s(from),
        range: SkipRange { from: s(from), to: s(to), count, reason: SkipReason::Misfire },
        cursor: Some(s(to + 10)),
    }
}

#[must_use]
pub fn settle(run: &ClaimedRun, verdict: Verdict) -> Settle {
    settle_with(run.id, run.fence, run.job, run.tenant, verdict)
}

#[must_use]
pub fn settle_with(run: RunId, fence: Fence, job: JobId, tenant: TenantId, verdict: Verdict) -> Settle {
    let error = (verdict != Verdict::Succeeded).then(|| "it said no".to_owned());
    let settlement = Settlement { run, fence, verdict, error, output: Some("printed".into()), pause: None };
    Settle { settlement, job, tenant, partition: 0, priority: 5, started_at: Some(s(11)), ended_at: s(12) }
}

#[must_use]
pub fn new_run(job: &str, key: &str) -> NewRun {
    NewRun { job: by_name(job), key: key.as_bytes().to_vec(), payload: None, force: false, idempotency: None }
}

#[must_use]
pub fn change(job: &str, change: Change) -> EditJob {
    EditJob { job: by_name(job), change, if_match: None, cancel: false }
}

#[must_use]
pub fn pause() -> Change {
    Change::Pause { note: None }
}

impl Bench {
    /// Opens an empty store at [`START`].
    pub async fn open<F, G>(open: F) -> Self
    where
        F: FnOnce(Arc<dyn WallClock>, Limits) -> G,
        G: Future<Output = (Arc<dyn Store>, Box<dyn Any + Send + Sync>)>,
    {
        let clock = Arc::new(ManualClock::at(START));
        let (store, kept) = open(clock.clone(), LIMITS).await;
        Self { store, clock, _kept: kept }
    }

    /// Sets the clock to `seconds` after [`START`].
    pub fn go(&self, seconds: i64) {
        self.clock.set(s(seconds));
    }

    /// Every partition of the store.
    #[must_use]
    pub fn all(&self) -> PartitionSet {
        PartitionSet::all(self.store.partitions())
    }

    /// Joins a node with a lease that outlasts every rule. It replaces a live process of the same name.
    pub async fn join(&self, node: &str, n: u128) -> Lease {
        let info = NodeInfo { takes_over: TakeOver::Any, ..NodeInfo::named(node) };
        self.store.join(&info, incarnation(n), Span::days(365)).await.unwrap().0
    }

    pub async fn create(&self, spec: JobSpec) -> Job {
        self.created(TENANT, spec).await.unwrap().job
    }

    pub async fn created(&self, tenant: TenantId, spec: JobSpec) -> Result<Created> {
        let job = NewJob { id: job_id(tenant, &spec.name), spec };
        self.store.create_jobs(tenant, &actor(), vec![job], None).await.unwrap().remove(0)
    }

    pub async fn record(&self, lease: &Lease, batch: JobTicks) -> Vec<RowAnswer> {
        self.store.record(lease, &[batch]).await.unwrap().jobs.remove(0)
    }

    /// Records one run of the job as born claimed and returns the claim.
    pub async fn claimed(&self, lease: &Lease, job: &Job, seconds: i64) -> ClaimedRun {
        let row = born(job, seconds);
        let id = row.tick.id;
        assert_eq!(self.record(lease, ticks(job, self.epoch(job).await, vec![row])).await, [RowAnswer::Inserted]);
        let found = self.store.load_claimed(lease).await.unwrap();
        found.into_iter().find(|run| run.id == id).expect("the run was born claimed")
    }

    /// Lists the old claims of a lease and raises the bound below which claims are listed.
    pub async fn pass_claims(&self, lease: &Lease, bound: RunId) {
        while self.store.list_old_claims(lease, bound).await.unwrap() < bound {}
        let beat = crate::Beat::of(bound);
        self.store.renew(lease, Span::days(9), &beat).await.unwrap();
    }

    /// Records one waiting run of the job.
    pub async fn waiting(&self, lease: &Lease, job: &Job, seconds: i64) -> RunId {
        let row = tick(job, seconds, Fate::Run);
        let id = row.tick.id;
        assert_eq!(self.record(lease, ticks(job, self.epoch(job).await, vec![row])).await, [RowAnswer::Inserted]);
        id
    }

    pub async fn range(&self, lease: &Lease, plan: &RangePlan) -> RangeAnswer {
        self.store.record_range(lease, plan).await.unwrap()
    }

    pub async fn raise(&self, job: &Job, epoch: i64, cursor: Option<DbTime>) -> Vec<JobId> {
        let raise = Raise { job: job.id, epoch: Epoch::from_raw(epoch), cursor };
        self.store.raise_cursors(&[raise]).await.unwrap()
    }

    pub async fn peek(&self, lease: &Lease) -> Waiting {
        self.store.peek_waiting(lease, &self.all(), &[], None, 100).await.unwrap()
    }

    pub async fn due(&self, lease: &Lease) -> Vec<RunId> {
        self.peek(lease).await.due.into_iter().map(|run| run.id).collect()
    }

    pub async fn claim(&self, lease: &Lease, run: RunId) -> ClaimedRun {
        let mut claimed = self.store.claim(lease, &self.all(), &[run]).await.unwrap();
        assert_eq!(claimed.len(), 1, "the run is claimed");
        claimed.remove(0)
    }

    pub async fn settle(&self, run: &ClaimedRun, verdict: Verdict) -> SettleAnswer {
        self.store.settle(&[settle(run, verdict)]).await.unwrap().remove(0)
    }

    pub async fn load(&self, job: &Job) -> LoadedJob {
        self.store.load_jobs(&[job.id]).await.unwrap().remove(0)
    }

    pub async fn epoch(&self, job: &Job) -> i64 {
        self.load(job).await.epoch.raw()
    }

    pub async fn cursor(&self, job: &Job) -> Option<DbTime> {
        self.load(job).await.cursor
    }

    pub async fn run(&self, id: RunId) -> RunRecord {
        self.store.get_run(TENANT, id).await.unwrap()
    }

    /// The job's runs and ranges, oldest first.
    pub async fn history(&self, job: &Job) -> Vec<RunRecord> {
        let filter = crate::RunFilter { job: Some(job.id), ..Default::default() };
        let mut items = self.store.list_runs(TENANT, &filter, None, 10_000).await.unwrap().items;
        items.reverse();
        items
    }

    pub async fn edit(&self, job: &str, change_to: Change) -> Edited {
        self.store.edit_job(TENANT, &actor(), change(job, change_to)).await.unwrap()
    }

    pub async fn trigger(&self, run: NewRun) -> RunRecord {
        self.store.trigger(TENANT, &actor(), run).await.unwrap()
    }

    pub async fn version(&self, job: &str) -> Version {
        self.store.get_job(TENANT, &by_name(job)).await.unwrap().job.version
    }

    /// The audit trail, oldest first.
    pub async fn audit(&self) -> Vec<crate::AuditRecord> {
        let mut items = self.store.list_audit(TENANT, None, 1_000).await.unwrap().items;
        items.reverse();
        items
    }
}
