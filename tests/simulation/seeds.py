"""Many seeds, one after the other: those that were asked for, and the one that shows a mistake."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator

from tests.simulation.world import World, run

#: The seeds named in KMQ_SIM_SEEDS.
ASKED = [int(seed) for seed in os.environ.get("KMQ_SIM_SEEDS", "").split(",") if seed]

#: Which seed showed a mistake that shows late; if it does no more, all are tried.
_SHOWN_BY = {
    "begins_where_it_began_before": 5,
    "believes_exists": 5,
    "checkpoints_what_is_not_on_disk": 7,
    "collects_before_the_grace_time_is_over": 53,
    "collects_orphans_without_a_word": 20,
    "commits_around_what_comes_again": 20,
    "commits_nothing_at_its_end": 136,
    "counts_every_note": 13,
    "counts_groups_in_part": 145,
    "counts_no_doubtful_note": 28,
    "deletes_without_a_mark": 74,
    "drops_a_tombstone_at_once": 27,
    "drops_log_files_that_rows_refer_to": 29,
    "ends_and_begins_in_no_order": 41,
    "finishes_what_is_missing_of_a_topic_that_it_reads_no_more": 53,
    "forgets_digests_at_a_checkpoint": 28,
    "forgets_members_at_a_checkpoint": 27,
    "forgets_offsets_at_a_checkpoint": 5,
    "forgets_slips_at_a_checkpoint": 61,
    "gets_many_of_a_key": 7,
    "gives_away_before_its_subscriber_knows": 37,
    "gives_back_and_hands_out": 13,
    "keeps_the_older_of_a_name": 12,
    "keeps_the_oldest_of_each_key": 6,
    "leaves_later_files_after_a_cut": 148,
    "lets_two_bury": 12,
    "looks_at_no_mark": 13,
    "looks_on_an_old_state": 13,
    "marks_a_slip_when_it_was_read": 264,
    "notes_what_is_answered_by_a_commit": 32,
    "numbers_compacted_records_anew": 3,
    "plans_on_what_another_thread_saw": 12,
    "plans_on_what_changed_since": 17,
    "proves_no_batches": 7,
    "publishes_a_root_before_its_pages": 3,
    "removes_without_sync": 110,
    "rolls_back_the_last_only": 86,
    "says_nothing_of_what_comes_again": 20,
    "takes_answers_of_earlier_deliveries": 4,
    "takes_damage_for_a_tail": 16,
    "takes_looks_of_a_former_binding": 13,
    "takes_no_answer_for_an_abort": 12,
    "takes_releases_of_old_plans": 62,
    "tells_nobody_of_losses": 48,
    "tries_again_under_another_sequence": 12,
    "trims_what_was_only_handed_out": 5,
    "wakes_nobody": 50,
}
#: The same in a bucket, where it is another one.
_SHOWN_IN_A_BUCKET = {"takes_releases_of_old_plans": 694}


def worlds_of(seeds: Iterable[int], kind: type[World], again: str) -> Iterator[World]:
    """The world of each seed, checked; a failure says by which command it comes again."""
    for seed in seeds:
        try:
            world = run(seed, kind)
        except Exception as error:
            error.add_note(f"again: KMQ_SIM_SEEDS={seed} {again}")
            raise
        yield world


def shows(mutant: str, seeds: int, kind: type[World] = World) -> bool:
    """Whether one of the first seeds fails; that which showed this mistake is tried first."""
    first = (_SHOWN_BY.get(mutant, 0), _SHOWN_IN_A_BUCKET.get(mutant, 0))
    tried = dict.fromkeys((*first, *range(seeds)))
    return any(_fails(seed, kind) for seed in tried)


def _fails(seed: int, kind: type[World]) -> bool:
    try:
        run(seed, kind)
    except (AttributeError, NameError, TypeError):
        raise  # the mutant itself is wrong, and proves nothing
    except Exception:
        return True
    return False
