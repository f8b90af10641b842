//! What every keeper must do, one rule a function, so that all of them are held to the same. A keeper's tests open it empty,
//! and [`conformance_suite!`] makes a test of each rule. Rules read and write through [`Store`] alone.

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
    job::{Job, JobSpec, Misfire, Overlap},
    partition::PartitionSet,
    plan::{Fate, SkipRange, TickRow},
    retry::{OnLost, RetryPolicy},
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

/// The limits under which a keeper is opened for the suite: small, so that they are reached.
pub const LIMITS: Limits = Limits {
    jobs_per_tenant_max: 20,
    open_requests_per_job_max: 3,
    waiting_per_job_max: 30,
    calendars_per_tenant_max: 5,
    runs_searched_max: 8,
    backlog_batch_max: 10,
};
/// The clock's first reading. Every job of the suite has ticks at whole ten seconds.
pub const START: DbTime = DbTime::from_millis(1_794_787_200_000);
pub const TENANT: TenantId = TenantId::DEFAULT;
pub const OTHER_TENANT: TenantId = TenantId::from_raw(2);
pub const TTL: Span = Span::seconds(15);

/// Makes a `#[test]` of every rule, for a store that one process has (`alone`) or that nodes share. `$open` is the path of an
/// `async fn(Arc<dyn WallClock>, Limits) -> (Arc<dyn Store>, Box<dyn Any + Send + Sync>)`, which gives an empty store and what
/// must live as long as it does.
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
    // A store that one process has to itself.
    ($open:path, alone) => {
        $crate::conformance_suite! { @group $open, alone:
            joining_ends_the_leases_of_other_nodes,
        }
        $crate::conformance_suite! { @every $open }
    };
    // A store that nodes share.
    ($open:path, shared) => {
        $crate::conformance_suite! { @group $open, sharing:
            joining_leaves_the_leases_of_other_nodes_alone,
            a_partition_has_one_holder,
            the_partitions_of_an_expired_lease_can_be_taken_and_their_fences_rise,
            the_partitions_of_a_node_that_left_can_be_taken,
            taking_over_fences_the_dead_node,
            a_node_that_comes_back_finds_what_nobody_took,
            a_node_that_is_about_to_stop_gives_all_back_and_keeps_its_claims,
            of_two_processes_under_one_name_the_older_gives_way,
            a_second_process_under_the_name_of_a_living_node_is_refused,
            an_expired_lease_leaves_its_name_free,
            a_lease_from_a_clock_that_was_ahead_lives_no_longer_than_a_lease,
            a_run_that_was_handed_over_is_claimed_by_its_node_and_by_no_other,
            a_run_that_was_handed_over_counts_as_in_progress,
            a_search_for_delegated_runs_skips_full_jobs_and_returns_the_oldest_first,
            what_was_handed_to_a_node_that_dies_or_stops_waits_again_unspent,
            a_run_is_handed_only_to_a_living_node_and_only_by_the_owner,
            only_the_holder_releases,
            the_lost_claims_of_one_node_are_found_by_another,
            the_claims_of_a_living_node_are_not_lost,
            two_nodes_record_a_tick_once,
            a_run_is_claimed_by_one_of_two_nodes,
        }
        $crate::conformance_suite! { @group $open, homes:
            the_first_job_of_a_region_claims_a_block_and_the_next_stands_in_it_too,
            regions_have_blocks_of_their_own_and_one_too_many_is_refused,
            a_job_that_is_refused_claims_nothing,
            regions_that_are_claimed_at_once_have_blocks_of_their_own,
            another_home_moves_the_job_and_what_waits_of_it,
            the_last_ticks_before_a_move_wait_where_the_job_stands_now,
            a_run_that_its_node_puts_back_after_a_move_waits_where_the_job_stands_now,
            a_move_is_told_where_the_job_was_and_where_it_is,
            an_edit_that_leaves_the_home_as_it_is_leaves_the_job_where_it_stands,
        }
        $crate::conformance_suite! { @every $open }
    };
    (@every $open:path) => {
        $crate::conformance_suite! { @group $open, nodes:
            the_clock_is_the_one_that_the_store_was_given,
            a_node_tells_how_it_is_when_it_renews,
            a_lease_lives_until_it_expires,
            a_renewed_lease_lives_longer,
            an_expired_lease_cannot_be_renewed,
            a_new_incarnation_has_a_higher_fence_and_ends_the_old_one,
            a_raised_fence_refuses_whoever_names_the_old_one,
            the_fence_of_a_lease_that_is_lost_cannot_be_raised,
            only_the_incarnation_and_the_node_of_a_lease_raise_its_fence,
            a_node_that_left_has_no_lease,
            fences_rise_even_when_the_clock_goes_back,
            a_cluster_shows_its_nodes_as_they_joined_and_renewed,
            a_node_that_left_or_was_replaced_is_not_shown,
        }
        $crate::conformance_suite! { @group $open, partitions:
            a_jobs_partition_is_that_of_its_id,
            a_free_partition_is_acquired_and_its_fence_rises,
            what_is_ours_already_is_given_again_and_its_fence_stays,
            a_partition_that_the_store_does_not_have_is_not_acquired,
            only_the_partitions_named_are_acquired_and_released,
            a_partition_of_another_incarnation_is_not_released,
            a_released_partition_is_free,
            a_node_that_leaves_releases_its_partitions,
            a_lost_lease_acquires_and_releases_nothing,
            a_new_incarnation_takes_what_the_old_one_held,
            the_horizon_has_only_the_jobs_of_the_partitions_asked_for,
            changes_come_only_of_the_partitions_asked_for,
            what_waits_comes_only_of_the_partitions_asked_for,
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
            a_run_is_due_when_its_jitter_says,
            a_skip_is_over_and_has_its_reason,
            a_batch_answers_for_each_row_in_its_order,
            a_tick_that_stands_twice_in_a_batch_is_recorded_once,
            a_lost_lease_records_nothing,
            an_empty_batch_is_recorded,
            a_thousand_jobs_are_recorded_in_one_batch,
            rows_of_several_ticks_of_one_job_are_recorded_in_order,
        }
        $crate::conformance_suite! { @group $open, loads:
            the_horizon_gives_jobs_by_cursor_and_goes_on_from_a_place,
            the_horizon_has_no_jobs_without_ticks,
            the_horizon_needs_a_lease,
            a_loaded_job_has_its_open_runs_and_no_others,
            a_load_reads_as_many_waiting_runs_as_the_policy_needs,
            a_load_reads_runs_between_two_attempts_before_others,
            what_waits_in_a_queue_is_counted_and_not_read,
            a_loaded_job_knows_the_last_tick_on_the_record_behind_its_cursor,
            a_claim_of_a_dead_incarnation_is_still_an_open_run,
            deleted_jobs_are_loaded_and_unknown_ones_left_out,
            changes_give_what_was_made_and_what_was_edited,
            a_new_job_whose_first_tick_is_far_ahead_is_found_by_the_horizon,
            changes_come_in_pages,
            a_reader_of_changes_that_is_up_to_date_gets_nothing_new,
        }
        $crate::conformance_suite! { @group $open, ranges:
            a_range_is_written_with_the_cursor_that_passes_it_and_raises_the_epoch,
            a_range_is_stale_when_the_cursor_is_another,
            a_range_is_stale_when_the_epoch_is_another,
            a_range_is_stale_when_its_end_lies_after_the_clock,
            a_range_is_stale_when_one_of_its_ticks_has_a_row,
            a_run_that_somebody_asked_for_does_not_stand_in_the_way_of_a_range,
            a_range_of_an_unknown_job_is_stale,
            a_lost_lease_records_no_range,
            ticks_planned_before_a_range_are_stale_after_it,
            a_range_may_end_the_schedule,
        }
        $crate::conformance_suite! { @group $open, cursors:
            a_cursor_is_raised,
            a_cursor_is_never_lowered,
            a_cursor_is_not_raised_under_another_epoch,
            a_cursor_may_be_raised_to_never_and_stays_there,
            a_batch_of_raises_answers_with_the_jobs_that_stand_where_asked,
        }
        $crate::conformance_suite! { @group $open, repairs:
            overdue_jobs_come_by_cursor_to_whoever_asks,
            a_walk_meets_every_job_that_is_not_deleted,
            a_ledger_has_the_ticks_and_ranges_of_its_window,
            a_lost_tick_is_recorded_although_the_cursor_has_passed_it,
            a_repair_leaves_what_is_on_the_record_as_it_is,
            a_repair_without_ticks_only_raises_the_epoch,
            a_repair_planned_under_another_epoch_is_not_done,
            what_the_cursor_has_not_passed_is_not_repaired,
            a_lost_lease_repairs_nothing,
        }
        $crate::conformance_suite! { @group $open, claims:
            what_waits_comes_on_time_first_then_by_priority_then_the_oldest,
            late_runs_come_tenant_by_tenant_in_turn,
            what_is_not_due_does_not_come_and_is_not_claimed,
            the_runs_of_busy_jobs_do_not_come_except_forced_ones_and_retries,
            no_more_come_than_asked_for,
            a_lost_lease_sees_nothing_that_waits,
            a_claim_raises_fence_and_attempt_and_takes_the_run_from_among_the_waiting,
            a_run_is_claimed_by_one_claim,
            it_can_be_asked_which_claims_are_still_ours,
            claims_answer_in_the_order_asked,
            a_lost_lease_claims_nothing,
            unknown_and_ended_runs_are_not_claimed,
            a_claim_brings_the_payload_of_the_run,
            an_incarnation_finds_its_claims_again,
            the_claims_of_an_ended_lease_are_lost,
            an_old_run_that_was_claimed_late_is_found_when_it_is_lost,
            a_node_that_left_loses_its_claims,
            our_own_claims_are_not_lost,
            lost_claims_come_no_more_than_asked_for,
            what_was_settled_is_no_longer_lost,
            a_renewal_may_pass_the_runs_that_are_over,
        }
        $crate::conformance_suite! { @group $open, old_claims:
            a_claim_that_has_become_old_is_listed_and_the_bound_passes_it,
            the_bound_does_not_pass_what_was_not_listed,
            a_claim_made_since_the_comparison_is_listed_with_the_renewal,
            a_claim_below_the_bound_is_listed_and_leaves_the_bound_alone,
            a_repeated_tick_leaves_the_listed_claim_of_another_node,
            a_renewal_under_an_older_fence_leaves_the_listed_claim_of_another_node,
            a_node_lists_no_claims_of_other_nodes,
            a_renewal_raises_no_bound_of_another_lease,
            an_old_claim_that_ended_is_open_no_longer,
            a_cancelled_job_leaves_the_old_claims_of_other_jobs,
            an_old_claim_keeps_its_job_busy,
            listed_claims_come_in_pages,
            a_lost_lease_lists_nothing,
            an_old_claim_is_not_pruned,
        }
        $crate::conformance_suite! { @group $open, accepted:
            an_accepted_run_outlives_its_node_and_is_settled_by_its_fence,
            only_a_claim_of_the_incarnation_is_accepted,
            a_claim_of_another_incarnation_is_not_accepted,
            a_lost_lease_hands_nothing_over,
            an_accepted_run_keeps_its_job_busy,
            an_accepted_run_gives_way_and_can_be_cancelled,
            an_accepted_run_of_an_edited_job_waits_where_the_job_is_now,
            an_accepted_run_times_out_without_a_report,
            an_accepted_run_is_not_pruned_however_old,
            an_accepted_run_is_not_ended_as_a_workers,
        }
        $crate::conformance_suite! { @group $open, settles:
            success_ends_the_run_with_what_it_printed,
            failure_ends_the_run_with_its_error,
            a_cancelled_outcome_ends_the_run_as_cancelled,
            an_old_fence_changes_nothing,
            what_is_over_cannot_be_settled_again,
            what_waits_cannot_be_settled,
            nothing_is_put_back_under_an_old_fence,
            an_unknown_run_cannot_be_settled,
            a_retry_waits_until_it_is_due_and_keeps_the_failed_attempt,
            a_lost_attempt_is_kept_and_the_run_waits_at_once,
            what_was_never_sent_is_handed_back_unspent,
            a_handed_back_retry_still_knows_its_earlier_attempts,
            a_batch_answers_for_each_settlement,
            a_batch_of_ends_answers_for_each_settlement,
            a_batch_keeps_of_each_end_what_was_said_of_it,
            a_run_named_twice_is_settled_by_the_first,
            a_thousand_runs_are_settled_in_one_batch,
            a_settlement_needs_no_lease,
            every_attempt_is_listed_the_first_one_first,
            the_attempt_under_way_is_listed_without_an_outcome,
            a_claims_fence_rises_even_when_the_clock_goes_back,
        }
        $crate::conformance_suite! { @group $open, queues:
            what_waits_in_a_queue_is_no_matter_for_nodes,
            a_worker_is_handed_a_run_under_a_raised_fence_and_a_lease,
            the_highest_priority_goes_first_and_waiting_counts,
            no_more_are_handed_out_than_asked_for_and_none_before_it_is_due,
            of_a_job_that_may_not_overlap_one_run_at_a_time_is_handed_out,
            no_more_of_a_job_are_handed_out_than_max_concurrent,
            a_run_that_a_node_still_works_on_counts_too,
            a_job_that_is_busy_hides_no_other,
            what_workers_hold_is_an_open_run_of_its_job,
            a_beat_keeps_the_claim_and_an_old_fence_keeps_nothing,
            a_beat_and_a_log_reach_only_the_run_named,
            a_settlement_ends_the_claim_and_its_repeat_is_stale,
            a_cancelled_run_is_told_at_the_next_beat,
            a_pause_that_cancels_ends_what_workers_hold,
            a_cancelled_job_leaves_what_workers_hold_of_other_jobs,
            a_lost_worker_gives_its_run_back_to_the_queue,
            a_success_is_taken_only_from_whoever_holds_the_run,
            whoever_claims_many_overlooks_nothing,
            whoever_looks_behind_others_passes_by_no_older_run_of_a_job_that_takes_turns,
            whoever_claims_many_keeps_the_order_of_a_job_that_takes_turns,
            a_run_that_takes_too_long_has_timed_out_however_often_its_worker_beats,
            a_log_is_added_to_and_its_end_is_kept,
            a_cancelled_run_keeps_what_its_worker_had_logged,
            a_log_is_kept_only_by_the_run_that_it_is_of,
            what_waits_follows_its_job_to_another_target,
            a_queue_hands_out_no_more_than_its_concurrency,
            a_queue_hands_out_no_faster_than_its_rate,
            a_claim_spends_the_rate_of_its_own_queue_alone,
            another_target_of_a_job_leaves_other_jobs_where_they_are,
            no_more_of_a_key_are_handed_out_than_the_job_allows,
            a_run_that_is_put_back_waits_under_its_own_key,
            a_key_that_is_busy_hides_no_other,
            a_look_tells_in_which_queues_something_is_due,
            queues_are_listed_with_what_they_hold_in_pages,
            no_worker_sees_another_tenants_runs,
            what_a_worker_holds_is_not_pruned_however_old,
        }
        $crate::conformance_suite! { @group $open, queue_previous:
            a_claim_has_what_is_older_give_way,
            what_busy_workers_hold_gives_way_to_what_is_due,
            what_is_not_due_yet_cancels_nothing,
        }
        $crate::conformance_suite! { @group $open, creates:
            a_new_job_begins_at_its_first_tick_after_the_clock,
            a_home_region_is_kept_until_an_edit_changes_it,
            a_disabled_job_and_one_without_a_schedule_have_no_cursor,
            a_name_can_be_had_once,
            a_name_can_be_had_once_in_a_batch,
            tenants_may_have_jobs_of_the_same_name,
            the_quota_holds_and_a_deleted_job_frees_a_place,
            one_job_that_is_refused_does_not_stop_the_others,
            an_at_that_has_passed_is_refused_with_the_stores_time,
            an_at_that_has_only_just_passed_still_counts,
            a_schedule_that_never_fires_is_refused_unless_disabled,
            a_repeated_request_gives_the_job_that_it_made,
            a_key_used_for_another_job_is_refused,
            a_key_belongs_to_its_tenant,
            a_request_that_was_refused_does_not_use_up_its_key,
            a_new_job_has_an_audit_row,
            jobs_made_together_have_an_audit_row_each,
            a_job_reads_as_it_was_made_whatever_it_says,
        }
        $crate::conformance_suite! { @group $open, edits:
            a_pause_records_the_ticks_that_are_due_and_no_tick_after_it,
            a_resumed_job_goes_on_after_the_pause,
            an_edit_never_gets_the_epoch_of_an_earlier_edit_that_was_lost,
            a_deleted_job_is_not_found_and_frees_its_name,
            a_replaced_definition_holds_from_x_on,
            ticks_planned_before_an_edit_are_stale_after_it,
            an_edit_of_another_version_is_refused,
            a_job_can_be_renamed_but_not_to_a_name_that_is_taken,
            an_edit_that_changes_nothing_writes_nothing,
            an_unknown_job_and_one_of_another_tenant_cannot_be_edited,
            an_edit_to_an_at_that_has_passed_is_refused,
            an_edit_to_an_at_of_a_moment_ago_records_its_tick,
            an_edit_to_an_at_that_is_on_the_record_is_refused,
            x_lies_after_the_last_recorded_tick_when_the_clock_goes_back,
            ticks_already_recorded_are_not_recorded_again_by_an_edit,
            an_edit_skips_due_ticks_that_overlap_an_open_run,
            an_edit_records_a_long_backlog_as_ranges,
            a_pause_leaves_open_runs_alone,
            a_pause_that_cancels_ends_what_waits_and_names_what_runs,
            a_delete_that_cancels_ends_open_runs,
            an_edit_has_an_audit_row_that_names_x,
            a_pause_keeps_its_note,
        }
        $crate::conformance_suite! { @group $open, calendars:
            a_calendar_is_made_read_listed_and_deleted,
            a_deleted_calendar_leaves_all_others,
            a_calendar_that_is_put_as_it_is_has_no_new_version,
            a_put_of_another_version_is_refused,
            a_tenant_has_only_so_many_calendars,
            a_job_that_names_a_calendar_which_is_not_there_is_refused,
            a_loaded_job_has_the_calendars_that_it_names,
            a_new_version_raises_the_epochs_of_the_jobs_that_name_it_and_of_no_others,
            ticks_planned_under_an_old_version_are_stale,
            an_edit_judges_each_tick_by_the_version_that_held_then,
            versions_keep_their_order_when_the_clock_goes_back,
            only_the_newest_versions_are_kept,
            a_calendar_that_a_job_names_cannot_be_deleted,
            calendars_do_not_cross_tenants,
            calendars_have_audit_rows,
        }
        $crate::conformance_suite! { @group $open, requests:
            a_run_that_somebody_asked_for_waits_at_once,
            a_request_that_overlaps_an_open_run_is_recorded_as_skipped,
            a_forced_request_waits_although_a_run_is_open,
            a_request_obeys_max_concurrent,
            requests_that_pile_up_are_refused,
            a_paused_job_can_be_run,
            a_repeated_request_gives_the_run_that_it_made,
            a_key_used_for_another_run_is_refused,
            an_unknown_deleted_or_foreign_job_cannot_be_run,
            a_waiting_run_is_cancelled,
            a_claimed_run_is_cancelled_and_its_worker_comes_too_late,
            a_run_that_is_over_cannot_be_cancelled,
            a_range_cannot_be_cancelled,
            an_unknown_or_foreign_run_cannot_be_cancelled,
            requests_have_audit_rows,
        }
        $crate::conformance_suite! { @group $open, cancels:
            what_gives_way_is_cancelled_under_a_raised_fence_with_the_reason,
            what_is_over_gives_no_way,
            a_lost_lease_makes_nobody_give_way,
            a_cancelled_run_keeps_what_its_last_attempt_had_printed,
            an_output_is_kept_only_by_the_run_named,
            what_succeeded_keeps_its_own_output,
            all_that_is_open_of_a_job_is_cancelled,
            an_unknown_deleted_or_foreign_job_has_nothing_to_cancel,
            under_queue_requests_wait_up_to_the_limit,
            under_queue_a_run_between_two_attempts_does_not_wait,
            under_queue_a_request_makes_stale_what_was_planned_without_it,
            under_cancel_previous_requests_wait_for_their_turn,
        }
        $crate::conformance_suite! { @group $open, redrives:
            each_failed_run_gets_one_new_run_in_its_place,
            a_failed_run_is_driven_again_once,
            under_cancel_previous_failed_runs_are_driven_again_one_at_a_time,
            a_redrive_keeps_to_its_time_and_its_limit_and_says_where_to_go_on,
            a_dry_redrive_makes_nothing,
            a_redriven_run_delivers_what_the_failed_one_had,
            a_redrive_makes_no_more_than_may_wait,
            a_redrive_has_audit_rows,
            under_queue_a_redrive_makes_stale_what_was_planned_without_it,
            an_unknown_or_foreign_job_cannot_be_redriven,
        }
        $crate::conformance_suite! { @group $open, backfills:
            a_backfill_is_made_without_runs_and_says_what_it_covers,
            its_runs_wait_as_late_ones_and_leave_ticks_and_cursor_alone,
            a_backfill_is_done_when_all_its_runs_are_over_and_tells_how_they_ended,
            a_job_that_may_not_overlap_gets_one_run_at_a_time,
            no_more_runs_are_made_than_rate_and_room_allow,
            the_order_is_as_asked,
            the_ticks_stay_what_they_were_when_it_was_made,
            a_cancelled_backfill_makes_no_more_runs,
            a_cancel_ends_no_other_backfill,
            one_that_is_done_stays_done,
            a_pause_does_not_stop_it_and_a_delete_does,
            a_repeated_request_gives_the_backfill_that_it_made,
            a_job_has_so_many_under_way_at_the_most,
            what_cannot_be_backfilled_is_refused_field_by_field,
            ticks_of_long_ago_have_runs_of_today,
            one_that_lasts_too_long_is_ended_with_a_note,
            a_lost_lease_makes_no_runs,
            backfills_are_looked_after_where_their_jobs_stand,
            backfills_are_listed_newest_first_in_pages_and_stay_with_their_tenant,
            backfills_have_audit_rows,
            what_is_over_goes_with_its_time,
            an_instant_is_explained_with_the_runs_that_were_made_for_it,
        }
        $crate::conformance_suite! { @group $open, facts:
            the_row_and_the_range_of_an_instant_are_found,
            what_was_changed_is_told_the_oldest_first_with_what_it_was,
            a_deleted_job_is_explained_by_its_id_and_by_its_name,
            without_an_instant_the_last_expected_tick_is_looked_at,
            calendars_of_past_definitions_come_along,
            facts_do_not_cross_tenants,
        }
        $crate::conformance_suite! { @group $open, reads:
            a_job_is_read_by_name_and_by_id_with_its_last_run,
            jobs_are_listed_by_name_in_pages,
            a_page_of_jobs_ends_at_its_limit_of_bytes_and_the_next_goes_on_behind_it,
            deleted_jobs_are_not_listed,
            jobs_are_filtered,
            runs_and_ranges_are_listed_together_newest_first_in_pages,
            runs_are_filtered_by_job_state_and_time,
            failed_runs_are_listed_however_many_others_lie_between,
            a_settlement_that_puts_a_run_back_or_comes_too_late_lists_no_failure,
            a_list_by_another_state_reads_a_bounded_number_of_runs_a_page_and_goes_on,
            an_output_is_read_with_its_run_and_left_out_of_lists,
            a_range_is_read_by_its_id,
            runs_bear_the_name_that_their_job_has_now,
            the_audit_trail_is_read_newest_first_in_pages,
            unknown_runs_are_not_found,
            nothing_crosses_tenants,
        }
        $crate::conformance_suite! { @group $open, flows:
            a_diamond_runs_each_job_once,
            two_parents_that_end_in_one_batch_make_one_child,
            a_skip_propagates_with_its_reason,
            a_root_that_fails_skips_what_follows,
            whatever_ends_a_run_is_taken_in,
            a_retry_ends_nothing,
            a_run_whose_job_nobody_follows_opens_no_flow,
            a_child_has_ticks_and_requests_of_its_own,
            a_child_that_is_paused_busy_or_deleted_is_skipped,
            a_child_under_queue_waits_its_turn_and_has_its_job_planned_anew,
            a_flow_keeps_the_graph_that_it_was_opened_with,
            a_payload_takes_from_its_parents,
            a_payload_takes_the_error_of_a_parent,
            a_skip_by_error_fails_the_flow_and_is_run_again,
            a_run_outside_a_flow_cannot_refer_to_parents,
            a_flow_that_starts_many_jobs_does_so_in_several_transactions,
            a_flow_that_is_given_up_skips_its_next_jobs_by_error,
            parents_are_found_when_a_job_is_defined,
            jobs_that_come_together_may_follow_each_other,
            a_cycle_is_refused_and_named,
            a_job_that_others_follow_stays_and_keeps_its_name,
            cancelling_a_flow_ends_what_is_open_and_starts_nothing_more,
            cancelling_a_flow_leaves_other_flows_and_runs,
            a_flow_may_be_cancelled_while_its_root_is_open,
            a_rerun_makes_one_new_flow_of_what_failed,
            a_rerun_under_one_key_is_made_once,
            an_old_flow_goes_with_its_runs,
            an_old_flow_goes_although_a_run_of_its_instant_is_left,
            a_flow_that_goes_on_outlives_the_history,
            a_flow_of_which_a_node_has_a_run_claimed_outlives_the_history,
            a_flow_of_which_a_worker_has_a_run_claimed_outlives_the_history,
            a_flow_stays_while_a_run_of_it_is_left,
            a_flow_stays_while_its_root_is_left,
            a_rerun_that_goes_on_outlives_the_history,
            a_redriven_run_opens_a_flow_of_its_own,
        }
        $crate::conformance_suite! { @group $open, pruning:
            old_runs_go_and_each_jobs_last_stays,
            open_runs_stay_however_old,
            runs_that_ended_later_stay,
            a_tick_that_the_cursor_has_not_passed_stays,
            a_pruned_tick_is_never_recorded_again,
            no_more_runs_go_than_asked_for,
            attempts_go_with_their_run,
            a_deleted_job_goes_when_its_runs_are_over,
            old_keys_are_forgotten_and_newer_ones_kept,
            old_audit_rows_go_and_newer_ones_stay,
        }
    };
}

type Boxed<'a, T> = std::pin::Pin<Box<dyn Future<Output = T> + 'a>>;

/// Holds an opened keeper to one rule. Compiled once, not once a rule and keeper: that took minutes.
pub fn hold_to(open: fn() -> Boxed<'static, Bench>, rule: for<'a> fn(&'a Bench) -> Boxed<'a, ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let bench = open().await;
        rule(&bench).await;
    });
}

/// An empty store, its clock, and short words for what most rules begin with.
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

/// An instant so many seconds after [`START`].
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

/// Every ten seconds, overlap skip, catch-up latest.
#[must_use]
pub fn spec(name: &str) -> JobSpec {
    let command = Command::Argv(vec!["true".into()]);
    let target = TargetSpec::Shell(ShellTarget { command, env: BTreeMap::new(), workdir: None });
    JobSpec {
        name: name.into(),
        description: String::new(),
        labels: BTreeMap::new(),
        enabled: true,
        schedule: Some(schedule(Timing::Every { every: Span::seconds(10) })),
        payload: None,
        overlap: Overlap::Skip,
        max_concurrent: None,
        priority: 5,
        misfire: Misfire::default(),
        retry: RetryPolicy::with_retries(0),
        on_lost: OnLost::Retry,
        timeout: Span::hours(1),
        home_region: None,
        concurrency_key: None,
        max_per_key: 1,
        keep: None,
        depends_on: Vec::new(),
        target,
    }
}

#[must_use]
pub fn schedule(timing: Timing) -> ScheduleSpec {
    ScheduleSpec { timing, starts_at: None, ends_at: None, jitter: None, exclude: Vec::new() }
}

/// The same, with runs that may overlap.
#[must_use]
pub fn overlapping(name: &str) -> JobSpec {
    JobSpec { overlap: Overlap::Allow, ..spec(name) }
}

/// An id made of the name, so that a rule that fails does so again.
#[must_use]
pub fn job_id(tenant: TenantId, name: &str) -> JobId {
    let mut bytes = [0; 16];
    for (place, byte) in name.bytes().enumerate() {
        bytes[place % 12] ^= byte.rotate_left(u32::try_from(place / 12).unwrap());
    }
    bytes[12..].copy_from_slice(&tenant.raw().to_be_bytes());
    JobId::from_uuid(Uuid::from_bytes(bytes))
}

/// The epoch of a new job that was raised once, at this instant.
#[must_use]
pub fn raised(at: DbTime) -> i64 {
    Epoch::from_raw(1).raised(at).raw()
}

/// The row of a job's tick, so many seconds after [`START`].
#[must_use]
pub fn tick(job: &Job, seconds: i64, fate: Fate) -> RecordRow {
    let at = s(seconds);
    let tick = TickRow { id: RunId::of(job.id, Cause::Tick(at)), tick: at, due_at: at, fate };
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

    /// Moves the clock to so many seconds after [`START`].
    pub fn go(&self, seconds: i64) {
        self.clock.set(s(seconds));
    }

    /// Every partition of the store.
    #[must_use]
    pub fn all(&self) -> PartitionSet {
        PartitionSet::all(self.store.partitions())
    }

    /// The lease of a node, for longer than any rule lasts. It replaces a process that lives under the name.
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

    /// Records one run of the job as born claimed and gives the claim.
    pub async fn claimed(&self, lease: &Lease, job: &Job, seconds: i64) -> ClaimedRun {
        let row = born(job, seconds);
        let id = row.tick.id;
        assert_eq!(self.record(lease, ticks(job, self.epoch(job).await, vec![row])).await, [RowAnswer::Inserted]);
        let found = self.store.load_claimed(lease).await.unwrap();
        found.into_iter().find(|run| run.id == id).expect("the run was born claimed")
    }

    /// Lists the old claims of a lease, and raises the bound of those that are not listed.
    pub async fn pass_claims(&self, lease: &Lease, bound: RunId) {
        while self.store.list_old_claims(lease, bound).await.unwrap() < bound {}
        let beat = crate::Beat::of(bound);
        self.store.renew(lease, Span::days(9), &beat).await.unwrap();
    }

    /// Records one run of the job as waiting.
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

    /// The job's runs and ranges, the oldest first.
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
        self.store.create_run(TENANT, &actor(), run).await.unwrap()
    }

    pub async fn version(&self, job: &str) -> Version {
        self.store.get_job(TENANT, &by_name(job)).await.unwrap().job.version
    }

    /// What the audit trail has, the oldest first.
    pub async fn audit(&self) -> Vec<crate::AuditRecord> {
        let mut items = self.store.list_audit(TENANT, None, 1_000).await.unwrap().items;
        items.reverse();
        items
    }
}
