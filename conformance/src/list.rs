//! The list of all cases.

use crate::case::{Body, Case};
use crate::harness::Harness;
use crate::model;
use crate::profile::Profile;
use crate::stalls::Ending;
use crate::subject::Subject;

/// The subjects, under the names that the list uses.
#[expect(non_upper_case_globals, reason = "the list below uses these lowercase names")]
mod subject {
    use crate::subject::Subject;

    pub(super) const layers: Subject = Subject::Layers;
    pub(super) const load: Subject = Subject::Load;
    pub(super) const network: Subject = Subject::Network;
    pub(super) const store: Subject = Subject::Store;
}

/// The needs, under the names that the list uses.
#[expect(non_upper_case_globals, reason = "the list below uses the names of the fault kinds")]
mod need {
    use crate::fault::FaultKind;
    use crate::need::Need;
    pub(super) use crate::need::Need::*;

    pub(super) const ConnectionsKilled: Need = Fault(FaultKind::ConnectionsKilled);
    pub(super) const NetworkSilent: Need = Fault(FaultKind::NetworkSilent);
    pub(super) const ReadOnly: Need = Fault(FaultKind::ReadOnly);
    pub(super) const ServerKilled: Need = Fault(FaultKind::ServerKilled);
    pub(super) const ServerStopped: Need = Fault(FaultKind::ServerStopped);
}

/// Returns all cases for the store of `H`.
///
/// The example for [`Case`] runs cases from this list.
pub fn cases<H: Harness>() -> Vec<Case> {
    cases_of(Profile::of::<H>())
}

/// Expands the list to `cases_of`.
macro_rules! cases {
    (models {
        $($model:ident needs $needs:ident;)+
    }
    $(
        $group:ident {
            $($case:ident : $subject:ident [$($number:literal),*] $(needs $($need:ident),+)?;)+
        }
    )+) => {
        fn cases_of(store: Profile) -> Vec<Case> {
            vec![
                $($(Case {
                    group: stringify!($group),
                    name: stringify!($case),
                    subject: subject::$subject,
                    numbers: &[$($number),*],
                    needs: &[$($(need::$need),+)?],
                    skips: store.skips(
                        stringify!($group),
                        subject::$subject,
                        &[$($(need::$need),+)?],
                    ),
                    store,
                    body: Body::OnScene(|scene| {
                        Box::pin(async {
                            crate::cases::$group::$case(scene).await.into_measured()
                        })
                    }),
                },)+)+
                $(Case {
                    group: "model",
                    name: stringify!($model),
                    subject: Subject::Store,
                    numbers: &[],
                    needs: model::$needs,
                    skips: store.skips("model", Subject::Store, model::$needs),
                    store,
                    body: Body::Model(model::$model),
                },)+
            ]
        }
    };
}

cases! {
    models {
        mutexes_agree_with_the_specification needs NEEDS;
        semaphores_agree_with_the_specification needs NEEDS_OF_PERMITS;
        rw_locks_agree_with_the_specification needs NEEDS_OF_READERS_AND_WRITERS;
        mixed_kinds_agree_with_the_specification needs NEEDS_OF_PERMITS;
    }
    mutual_exclusion {
        many_tasks_never_overlap: load [1];
        many_clients_never_overlap: load [2];
        a_held_lock_is_refused_at_once: store [3];
        a_refusal_names_the_holder_and_the_time_left: store [] needs Admin;
        a_refused_caller_is_told_the_holder: store [] needs Admin;
        similar_names_are_different_locks: store [4];
        one_name_is_one_lock_for_all_clients: store [5];
        an_expired_lease_has_one_successor: store [7];
        a_grant_whose_reply_is_lost_is_the_same_acquisition: store [8];
        a_grant_without_a_reply_is_given_back: layers [8];
        a_request_that_arrives_late_is_not_reported_as_held: layers [9];
        a_grant_that_comes_too_late_is_refused_and_given_back: layers [10, 15];
        locks_of_one_client_do_not_mix: store [11];
        a_guard_may_be_released_by_another_task: layers [12];
    }
    expiry {
        an_unrenewed_lease_ends_after_its_ttl_and_not_before: store [13];
        the_deadline_counts_from_before_the_request: layers [14];
        a_slow_reply_leaves_less_of_the_lease: layers [15];
        a_ttl_that_drift_eats_up_is_refused_before_any_request: layers [16];
        the_longest_ttl_is_stored_exactly_and_a_longer_one_refused: store [17];
        belief_ends_at_the_deadline_though_the_store_still_has_the_lease: layers [18];
        a_release_overtaken_by_expiry_leaves_the_successor: layers [19];
        a_guard_past_its_deadline_only_says_that_it_is_lost: layers [20];
        a_holder_that_is_gone_frees_the_key_within_a_ttl: store [21];
    }
    renewal {
        a_lock_is_kept_for_many_ttls: store [22, 52];
        a_renewal_puts_the_full_ttl_in_force: store [];
        a_forged_id_renews_nothing: store [41];
        a_renewal_that_hangs_is_repeated_in_time: layers [23];
        failing_renewals_make_a_lease_unconfirmed_and_then_lost: layers [24];
        an_unconfirmed_lease_is_held_again_once_a_renewal_succeeds: layers [];
        renewals_go_on_over_a_new_connection: network [25] needs ConnectionsKilled;
        a_short_silence_costs_no_lock: network [25] needs NetworkSilent;
        a_definite_no_is_a_loss_at_once_and_the_end_of_renewals: layers [26, 98] needs Admin;
        an_acknowledgement_after_the_deadline_revives_nothing: layers [27];
        a_renewal_that_races_a_release_never_brings_the_key_back: store [28];
        nothing_is_renewed_after_its_release: layers [29];
        a_thousand_locks_are_all_renewed: load [30];
        an_old_watchdog_leaves_a_new_lease_alone: layers [31];
        a_renewal_that_always_hangs_costs_no_other_lock: layers [32];
        max_hold_ends_a_lease_that_is_renewed: layers [33];
        max_hold_limits_an_extension: layers [33, 34];
        max_hold_may_be_shorter_than_the_ttl: layers [33];
        extending_moves_the_lease_in_the_store_and_here: store [34];
        shortening_moves_the_deadline_before_the_store_answers: layers [34];
        an_extension_that_fails_takes_nothing_away: layers [35];
        an_extension_that_hangs_ends_with_the_lease: layers [35];
        an_extension_that_is_dropped_does_not_end_renewals: layers [85];
        a_stalled_process_sees_the_loss_first: layers [36, 99];
        without_a_watchdog_nothing_is_written: layers [37];
    }
    release {
        a_released_lock_is_free_and_a_second_release_is_nothing: store [38];
        a_release_whose_reply_is_lost_stays_unknown_and_is_harmless: layers [39];
        a_release_that_was_not_sent_is_repeated: layers [39];
        a_stale_release_leaves_the_successor: store [40];
        a_forged_id_releases_nothing: store [41];
        renewals_end_even_if_the_release_fails: layers [42];
        a_release_to_a_silent_store_ends_in_time_and_goes_on_behind: layers [43];
        a_dropped_guard_is_released_in_the_background: layers [44];
        a_background_release_is_repeated_until_it_is_heard: layers [44];
        a_guard_dropped_by_a_panic_is_released: layers [45];
        a_guard_may_be_dropped_outside_of_any_runtime: layers [46];
        a_guard_may_outlive_its_client: layers [];
        a_release_has_happened_when_it_returns: store [47];
        a_shutdown_releases_all_that_it_can: layers [49];
        a_shutdown_that_cannot_finish_says_so_in_time: layers [49];
        min_hold_keeps_the_key_closed_after_the_release: store [];
    }
    fencing {
        tokens_strictly_increase: load [50];
        tokens_follow_real_time_across_clients: store [51];
        tokens_survive_renewals: store [52];
        tokens_increase_after_expiry: store [53];
        tokens_increase_after_a_forced_release: store [53] needs Admin;
        a_repeated_request_has_the_token_of_the_live_grant: store [54];
        tokens_of_different_keys_have_no_order: store [55];
        a_resource_that_checks_tokens_refuses_a_late_holder: store [56, 99];
        tokens_increase_after_a_restart: network [57] needs ServerKilled;
    }
    reentrancy {
        an_owner_enters_again_and_others_wait_for_its_last_guard: layers [62];
        another_owner_in_the_same_task_is_kept_out: layers [63];
        an_owner_may_be_many_tasks: layers [62];
        entering_again_is_no_request_and_no_new_token: layers [52];
        an_inner_release_leaves_the_lock_and_its_renewal: layers [64];
        the_depth_limit_is_an_error_at_once: layers [65];
        a_loss_is_the_loss_of_all_levels: layers [66] needs Admin;
        a_lost_reply_does_not_spoil_the_count: layers [67];
        a_plain_mutex_never_enters_again: layers [68];
        joined_calls_of_one_owner_share_the_lock: layers [];
    }
    hand_over {
        a_lease_passes_to_the_next_task_without_a_request: store [] needs SpareTokens;
        spare_tokens_belong_to_one_grant: store [];
        a_caller_that_leaves_with_the_lease_in_hand_passes_it_on: layers [];
        the_last_caller_to_leave_gives_the_lease_back: layers [];
        a_lost_lease_is_not_passed_on: layers [] needs Admin;
        a_loss_is_only_the_present_holders: layers [] needs Admin;
        other_processes_get_their_turn: store [];
        processes_that_want_it_all_the_time_get_fair_shares: store [] needs Queue;
        a_former_owner_does_not_enter_again: layers [];
        without_it_every_holder_asks_the_store: layers [];
        a_caller_that_wants_another_lease_asks_the_store: layers [];
    }
    waiting {
        a_release_wakes_a_waiter: store [70] needs Push;
        a_lease_after_a_wait_lasts_like_any_other: store [];
        a_forced_release_wakes_a_waiter: store [70] needs Push, Admin;
        a_waiter_without_any_news_polls: layers [70, 71];
        a_release_just_before_the_waiting_is_not_missed: store [72] needs Push;
        a_lost_connection_costs_a_waiter_nothing: network [73] needs Push, ConnectionsKilled;
        a_waiter_is_served_when_a_dead_holder_expires: store [71, 74];
        one_release_serves_one_and_the_others_go_on_waiting: store [75];
        a_wait_ends_when_it_is_over_and_not_before: layers [76];
        a_wait_that_ends_during_a_later_attempt_is_a_refusal: layers [76];
        one_budget_covers_the_queue_and_the_store: layers [76];
        a_flood_of_news_is_no_busy_loop: layers [77];
        a_thousand_waiters_of_a_process_are_one_to_the_store: load [78];
        callers_of_a_process_are_served_in_order: layers [];
        too_many_waiters_are_refused_at_once: layers [79];
    }
    cancellation {
        an_acquisition_may_be_dropped_at_any_point: store [82];
        a_wait_may_be_dropped_at_any_point: store [82, 86];
        a_grant_that_no_caller_takes_is_given_back: layers [83];
        a_release_may_be_dropped_at_any_point: store [84];
        an_extension_may_be_dropped_at_any_point: store [85];
        a_dropped_waiter_gives_way_to_the_next: layers [86];
        a_timeout_that_races_the_grant_leaves_a_guard_or_nothing: store [88];
        a_loop_that_starts_over_leaves_nothing_behind: store [89];
        an_aborted_task_releases_its_lock: layers [92];
        dropped_calls_do_not_mix_up_later_replies: store [93];
        any_fault_at_any_step_leaves_the_key_usable: layers [94];
    }
    lost {
        a_loss_shows_in_every_way: layers [95] needs Admin;
        a_silent_network_is_a_loss_by_the_deadline: network [96] needs NetworkSilent;
        a_frozen_store_is_a_loss_by_the_deadline: network [96, 148, 149] needs ServerStopped;
        a_deleted_key_is_a_loss_by_the_next_renewal: store [97] needs Admin;
        a_stolen_key_is_a_loss_at_once_where_the_store_tells: store [97, 98] needs Push, Admin;
        a_theft_during_a_renewal_is_a_loss_at_once_too: store [97, 98] needs Push, Admin;
        passing_errors_are_no_loss: layers [100];
        a_loss_is_seen_however_late_one_asks: layers [101] needs Admin;
        a_loss_lets_others_of_the_process_in: layers [] needs Admin;
        work_that_ends_in_time_is_returned: layers [95] needs Admin;
    }
    retry {
        pauses_grow_and_are_random: layers [103];
        a_permanent_error_is_not_repeated: layers [104];
        a_passing_error_is_waited_out: layers [105];
        an_outage_is_waited_out_only_so_long: layers [105, 106];
        no_wait_is_one_attempt: layers [106];
        attempts_can_be_counted: layers [106];
        a_repeated_request_is_not_in_its_own_way: store [107];
        releases_and_renewals_may_be_repeated_for_ever: store [108];
        a_write_that_the_store_rejects_is_not_an_unknown_outcome: network [] needs ReadOnly;
    }
    bad_input {
        odd_names_are_locks_of_their_own: store [190, 191];
        long_names_are_kept_whole_or_refused: store [190];
        odd_descriptions_are_refused_or_kept_whole: store [192] needs Admin;
        impossible_settings_are_refused_before_any_request: layers [193];
        the_longest_durations_do_not_overflow: layers [183];
        lease_ids_stay_secret: store [198];
        a_forced_release_is_the_operators_and_names_the_holder: store [201] needs Admin;
        a_forced_release_of_one_lease_spares_its_successor: store [201] needs Admin;
        a_forced_release_of_one_lease_spares_the_other_holders: store [201] needs Admin, Units;
    }
    fair {
        claims_are_served_in_order_of_arrival: store [123] needs Queue;
        fair_callers_are_served_in_order_across_clients: store [123] needs Queue;
        no_claim_passes_the_queue: store [123] needs Queue;
        a_waiter_keeps_its_place_for_as_long_as_it_waits: store [123] needs Queue;
        an_outage_is_no_busy_loop_for_a_queue: layers [105] needs Queue;
        a_dead_waiter_holds_up_the_next_for_its_place_only: store [124] needs Queue;
        a_waiter_that_gives_up_leaves_the_queue_at_once: store [86, 125] needs Queue;
        a_waiter_that_comes_back_goes_to_the_end: store [125] needs Queue;
        a_place_that_has_ended_is_lost: store [81, 125] needs Queue;
        a_queue_outlives_a_holder_that_dies: store [124] needs Queue;
        a_waiter_that_is_served_has_left_the_queue: store [125] needs Queue;
        a_waiter_that_leaves_wakes_the_next: store [86] needs Queue, Push;
        a_place_may_be_given_up_late_and_twice: store [125] needs Queue;
        a_fair_wait_may_be_dropped_at_any_point: store [82, 86] needs Queue;
    }
    inspection {
        each_kind_of_lock_is_told: store [] needs Units, Admin;
        a_downgrade_is_seen: store [] needs Units, Queue, Admin;
        a_holder_has_the_token_of_its_guard: store [] needs Units, Admin;
        a_holder_is_seen_to_age: store [] needs Units, Admin;
        claims_in_the_queue_are_listed_in_order: store [] needs Queue, Admin;
        keys_in_use_are_listed_and_no_others: store [] needs Admin;
        keys_of_all_kinds_are_listed: store [] needs Admin, Queue, Units;
        many_keys_are_listed_page_by_page: store [] needs Admin;
    }
    rw_lock {
        readers_share_and_a_writer_is_alone: store [110] needs Units, Queue;
        a_refused_reader_or_writer_is_told_a_holder: store [] needs Units, Queue, Admin;
        waiting_readers_enter_together: store [111] needs Units, Queue;
        a_dead_reader_keeps_a_writer_out_for_its_own_ttl_only: store [112, 113] needs Units, Queue;
        readers_that_come_and_go_do_not_starve_a_writer: store [114] needs Units, Queue;
        a_waiting_writer_does_not_starve_readers: store [114] needs Units, Queue;
        a_reader_that_would_write_is_told_of_the_deadlock: layers [115] needs Units, Queue;
        an_owner_that_writes_may_read_and_write_again: layers [] needs Units, Queue;
        a_downgrade_lets_readers_in_and_no_writer_between: store [115] needs Units, Queue;
        a_downgrade_wakes_waiting_readers: store [70] needs Units, Queue, Push;
        a_downgrade_lets_readers_of_its_own_process_in: store [115] needs Units, Queue;
        a_downgrade_that_the_store_did_not_hear_of_is_repeated: layers [90] needs Units, Queue;
        a_downgrade_may_be_dropped_at_any_point: store [90] needs Units, Queue;
        a_reader_and_a_writer_cannot_release_each_other: store [116] needs Units, Queue;
    }
    semaphore {
        no_more_permits_are_out_than_there_are: store [117] needs Units;
        all_permits_of_a_request_are_granted_or_none: store [91] needs Units;
        an_acquisition_of_permits_may_be_dropped_at_any_point: store [91] needs Units;
        a_lost_permit_comes_back_once: store [118] needs Units;
        a_stolen_permit_is_a_loss_at_once_where_the_store_tells: store [97, 98] needs Units, Admin, Push;
        each_holder_has_its_own_ttl: store [112] needs Units;
        permits_are_renewed_while_they_are_held: store [] needs Units;
        a_renewal_gives_units_back_and_takes_none: store [] needs Units;
        a_free_permit_is_refused_only_for_the_sake_of_a_waiter: store [] needs Units;
        a_release_wakes_a_waiter: store [70] needs Units, Push;
        a_refusal_tells_of_the_lease_that_ends_first: store [] needs Units, Admin;
        a_waiter_that_is_served_has_left_the_queue: store [] needs Units, Queue;
        clients_may_name_different_limits: store [119] needs Units;
        impossible_numbers_are_refused_at_once: store [120] needs Units;
        an_unknown_permit_is_not_released: store [120] needs Units;
        a_key_is_one_kind_of_lock_at_a_time: store [196] needs Units;
    }
    revocation {
        a_holder_that_is_asked_back_learns_of_it_and_goes_on: store [] needs Admin;
        a_holder_is_told_at_once_where_the_store_tells: store [] needs Admin, Push;
        the_next_holder_is_not_asked: store [] needs Admin;
        a_request_ends_with_the_lease_that_it_was_for: store [] needs Admin;
        a_waiter_that_queued_meanwhile_is_not_asked: store [] needs Admin, Queue;
        a_request_stands_until_the_last_lease_would_end: store [] needs Admin, Units;
        all_holders_of_a_key_are_asked: store [] needs Admin, Units;
        one_holder_can_be_asked_without_the_others: store [] needs Admin, Units;
        a_request_to_one_holder_spares_its_successor: store [] needs Admin;
        all_holders_of_a_key_are_told_at_once_where_the_store_tells: store [] needs Admin, Units, Push;
    }
    together {
        all_keys_are_granted_or_none: store [] needs Together;
        a_refusal_leaves_nothing_not_even_a_place: store [] needs Together, Queue;
        a_repeated_request_for_several_is_the_same_acquisition: store [] needs Together;
        a_grant_of_several_passes_no_queue: store [] needs Together, Queue;
        a_key_of_another_kind_is_named_and_none_is_granted: store [] needs Together, Units;
        as_many_as_are_promised_are_granted_at_once: store [] needs Together;
        crossing_sets_never_overlap: store [] needs Together;
    }
    membership {
        a_renewal_raises_the_minimum_token: store [] needs Member;
        a_minimum_token_without_its_lease_is_refused: store [] needs Member;
        a_requested_token_within_reach_is_granted: store [] needs Member;
        a_requested_token_far_ahead_is_ignored: store [] needs Member;
        a_store_reports_its_identity_and_its_minimum_token: store [] needs Member;
        a_vote_needs_a_member_of_its_quorum: store [] needs Member;
        a_join_request_raises_the_minimum_token_of_all_keys: store [] needs Member;
        a_join_request_for_another_store_changes_nothing: store [] needs Member;
        a_join_request_of_another_quorum_changes_nothing: store [] needs Member;
    }
    lock_delay {
        a_lost_lock_stays_closed_for_the_delay: layers [];
        a_request_that_hangs_is_repeated_without_the_delay: layers [];
        a_background_release_goes_on_through_the_delay: layers [];
        the_longest_ttl_is_that_of_the_whole: store [];
        a_released_lock_opens_at_once: layers [];
    }
    multi_lock {
        several_locks_are_all_taken_or_none: store [48];
        a_part_that_fails_leaves_nothing: layers [48];
        several_locks_may_be_dropped_at_any_point: store [87];
        a_wait_for_the_last_part_may_be_dropped_at_any_point: layers [87];
        keys_named_in_opposite_orders_never_deadlock: store [126];
        one_wait_covers_all_parts: layers [];
        the_loss_of_one_part_is_the_loss_of_the_whole: layers [] needs Admin;
        tokens_of_each_part_increase: store [];
        parts_may_be_of_different_kinds: store [] needs Units, Queue;
    }
    striped {
        each_segment_has_one_holder_and_all_can_be_had: layers [];
        no_two_meet_in_a_segment: layers [];
        a_waiter_gets_the_first_segment_that_is_freed: layers [];
        a_wait_for_a_segment_may_be_dropped_at_any_point: layers [];
    }
    election {
        at_most_one_leads_at_a_time: store [127] needs Units, Queue, Admin;
        a_resignation_hands_over_at_once: store [127] needs Units, Queue, Admin;
        a_dead_leader_is_succeeded_within_a_ttl_and_knew_before: store [127] needs Units, Queue, Admin;
        a_proclamation_is_seen_by_all: store [] needs Units, Queue, Admin;
        an_observer_is_told_of_every_change: store [] needs Units, Queue, Admin;
        an_observer_is_told_at_once_where_the_store_tells: store [] needs Units, Queue, Admin, Push;
        an_observer_without_news_looks_all_the_same: layers [] needs Units, Queue, Admin;
        an_observer_sees_a_leader_die: store [] needs Units, Queue, Admin;
        a_campaign_may_be_dropped_at_any_point: store [] needs Units, Queue, Admin;
    }
}
