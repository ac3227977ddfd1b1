"""The checker finds each fault in a history that has it."""

import pytest
from history import DIRECT, IN_DOUBT, KEPT, KINDS, LIFE, TRANSIENT, judge

FIRST, SECOND = ["life", 0], ["life", 1]


def accepted(*numbers, log=None):
    return [event for number in numbers for event in (["begun", number], ["accepted", number, log])]


def heard(*numbers, again=False, life=0, log=None, missed=0):
    return [["heard", "source", number, again, life, log, missed] for number in numbers]


def told(*numbers, text=IN_DOUBT):
    return [["told", number, text] for number in numbers]


def verdict(sent, received, kind="direct", **options):
    return judge([FIRST, *sent], [FIRST, *received], "source", kind, **options)


def later(*numbers):
    """Numbers of the second life."""
    return [LIFE + number for number in numbers]


def test_a_clean_history():
    assert verdict(accepted(0, 1, 2), heard(0, 1, 2)).is_clean()


def test_what_was_accepted_and_not_heard_is_lost_unless_its_sender_was_told():
    assert verdict(accepted(0, 1, 2), heard(0, 2)).lost == {1}
    assert verdict([*accepted(0, 1, 2), ["told", 1, "gone"]], heard(0, 2)).is_clean()
    assert verdict([*accepted(0), ["begun", 1], ["refused", 1, "full"], *accepted(2)], heard(0, 2)).is_clean()


def test_the_last_messages_of_a_killed_sender_are_excused_unless_they_were_on_disk():
    sent = [*accepted(0, 1, 2), SECOND, *accepted(*later(0, 1))]
    assert verdict(sent, heard(0, *later(0, 1))).is_clean()
    assert verdict(sent, heard(0, 2, *later(0, 1))).lost == {1}
    assert verdict(sent, heard(0, *later(0, 1)), "persistent").lost == {1, 2}
    assert verdict(sent, heard(0, 1, 2, *later(0))).lost == set(later(1))
    moved = [*accepted(0, 1, 2), ["saved", 0], SECOND, *accepted(*later(0, 1))]
    assert verdict(moved, heard(0, *later(0, 1))).lost == {1, 2}


def test_events_that_a_move_left_behind_are_excused_if_their_sender_was_killed_soon():
    received = [*heard(0, 1), ["saved", 0], SECOND, *heard(4, 5)]
    sent = accepted(*range(8))
    assert verdict(sent, received, "channel").lost == {2, 3, 6, 7}
    killed = [*sent, SECOND, *accepted(*later(0))]
    received += heard(*later(0))
    assert verdict(killed, received, "channel").is_clean()
    assert verdict(killed, received).lost == {2, 3}
    # A sender that goes on for long has been told, unless the receiver's former process was killed.
    sent = accepted(*range(1000))
    killed = [*sent, SECOND, *accepted(*later(0))]
    assert verdict(killed, received, "channel").is_clean()
    received.append(["ended", 0])
    assert verdict(killed, received, "channel").lost == {2, 3}
    # The former process could be cut off, and tell it late.
    killed = [*sent, ["told", 2, "gone"], SECOND, *accepted(*later(0))]
    assert verdict(killed, received, "channel").is_clean()
    killed = [*sent, ["told", 2, "gone"], ["told", 9, "gone"], SECOND, *accepted(*later(0))]
    assert verdict(killed, received, "channel").lost == {3}
    # Numbers heard on both sides of a gap are no excuse without a move.
    assert verdict([*sent, SECOND, *accepted(*later(0))], heard(0, 1, 4, 5, *later(0)), "channel").lost == {2, 3}


def test_a_life_that_goes_on_beside_the_next_one():
    sent = [*accepted(0, 1), SECOND, *accepted(*later(0)), *accepted(2), *accepted(*later(1))]
    assert verdict(sent, heard(0, 1, *later(0), 2, *later(1))).is_clean()
    assert verdict(sent, heard(0, *later(0), 2, *later(1))).lost == {1}
    assert verdict(sent, heard(0, 1, *later(1, 0), 2)).reordered == later(0)


def test_the_message_that_a_killed_receiver_had_in_hand_is_excused():
    sent = accepted(0, 1, 2, 3)
    for kind in ("direct", "sealed-direct", "persistent", "channel", "sealed"):
        assert verdict(sent, [*heard(0), SECOND, *heard(2, 3)], kind).is_clean()
        assert verdict(sent, [*heard(0), ["saved", 0], SECOND, *heard(2, 3)], kind).lost == {1}
    for kind in ("persistent", "channel", "sealed"):
        assert verdict(sent, [*heard(0), SECOND, *heard(3)], kind).lost == {2}
    assert verdict(sent, [*heard(0), SECOND, *heard(2, 3)], "durable").lost == {1}


def test_direct_messages_that_a_killed_receiver_had_not_read_are_excused():
    sent = accepted(0, 1, 2, 3, 4)
    for kind in ("direct", "sealed-direct"):
        assert verdict(sent, [*heard(0), SECOND, *heard(3, 4)], kind).is_clean()
        assert verdict(sent, [*heard(0), SECOND, *heard(2, 4)], kind).lost == {3}


@pytest.mark.parametrize("kind", KINDS)
def test_a_number_that_was_heard_and_told_is_told_falsely(kind):
    for text in (IN_DOUBT, "the agent has ended"):
        for numbers in ((1,), (1, 2), (2,)):
            found = verdict([*accepted(0, 1, 2), *told(*numbers, text=text)], heard(0, 1, 2), kind)
            assert found.told_falsely == set(numbers) and not found.is_clean()


def test_a_word_that_is_lost_with_a_killed_receiver_is_excused():
    sent = [*accepted(0, 1, 2, 3), *told(1, 2)]
    killed = [*heard(0, 1, 2), SECOND, *heard(3, life=1)]
    for kind in (*DIRECT, *TRANSIENT):
        assert verdict(sent, killed, kind).is_clean()
        # Whatever was heard after it must have come back too.
        assert verdict([*accepted(0, 1, 2, 3), *told(1)], killed, kind).told_falsely == {1}
        # The next life was not killed.
        assert verdict([*sent, *told(3)], killed, kind).told_falsely == {3}
    for kind in KEPT:
        assert verdict(sent, killed, kind).told_falsely == {1, 2}
    # Direct messages: the failure must not claim that they did not arrive, and a move loses no word.
    sure = [*accepted(0, 1, 2, 3), *told(1, 2, text="the agent has ended")]
    moved = [*heard(0, 1, 2), ["saved", 0], SECOND, *heard(3, life=1)]
    for kind in DIRECT:
        assert verdict(sure, killed, kind).told_falsely == {1, 2}
        assert verdict(sent, moved, kind).told_falsely == {1, 2}
    for kind in TRANSIENT:
        assert verdict(sure, killed, kind).is_clean()
        assert verdict(sure, moved, kind).is_clean()


def test_a_word_that_does_not_reach_a_sender_that_is_given_up_is_excused():
    received = heard(0, 1, 2, 3, 4, *later(0))
    next_life = [SECOND, *accepted(*later(0))]
    for kind in (*DIRECT, *TRANSIENT):
        assert verdict([*accepted(0, 1, 2, 3, 4), *told(3, 4), *next_life], received, kind).is_clean()
        # It ended while it was being told.
        assert verdict([*accepted(0, 1, 2, 3, 4), *told(2), *next_life], received, kind).is_clean()
        # It went on, and was not told of what came after.
        assert verdict([*accepted(0, 1, 2), *told(2), *accepted(3, 4), *next_life], received, kind).told_falsely == {2}
        moved = [*accepted(0, 1, 2, 3, 4), *told(3, 4), ["saved", 0], *next_life]
        assert verdict(moved, received, kind).told_falsely == {3, 4}
    for kind in KEPT:
        assert verdict([*accepted(0, 1, 2, 3, 4), *told(3, 4), *next_life], received, kind).told_falsely == {3, 4}


def test_events_for_a_silent_process_may_arrive_and_come_back():
    sent = [*accepted(*range(6)), *told(1, 2, 3)]
    received = heard(0, 1, 2, 4, 5)
    for kind in TRANSIENT:
        assert verdict(sent, received, kind).told_falsely == {1, 2}
        assert verdict(sent, received, kind, silent=True).is_clean()
        # One heard before the end of the silence did not come back.
        assert verdict([*accepted(*range(6)), *told(1, 3)], received, kind, silent=True).told_falsely == {1}
        sure = [*accepted(*range(6)), *told(1, 2, 3, text="the agent has ended")]
        assert verdict(sure, received, kind, silent=True).told_falsely == {1, 2}
    for kind in (*DIRECT, *KEPT):
        assert verdict(sent, received, kind, silent=True).told_falsely == {1, 2}


def test_an_event_that_its_subscriber_has_where_it_moved_to_does_not_come_back_from_where_it_was():
    moved = [*heard(0), ["saved", 0], SECOND, *heard(2, 3, life=1)]
    for kind in TRANSIENT:
        for text in ("the agent has ended", "refused by the receiving side (not-opened): it is no member"):
            assert verdict([*accepted(0, 1, 2, 3), *told(1, text=text)], moved, kind).is_clean()
            assert verdict([*accepted(0, 1, 2, 3), *told(1, 2, text=text)], moved, kind).told_falsely == {2}


@pytest.mark.parametrize("kind", KINDS)
def test_a_number_that_is_heard_twice_without_a_mark_is_doubled(kind):
    for received in (heard(0, 1, 1), [*heard(0, 1), SECOND, *heard(1, life=1)], [*heard(0, 1, again=True), *heard(1)]):
        found = verdict(accepted(0, 1), received, kind)
        assert found.doubled == [1] and not found.is_clean()
    assert verdict(accepted(0, 1), [*heard(0, 1), *heard(1, again=True)], kind).is_clean()


def test_of_two_agents_that_run_beside_each_other_one_hears_a_number_with_a_mark():
    marked_elsewhere = [*heard(0), SECOND, *heard(1, again=True, life=1), *heard(2, life=1)]
    assert verdict(accepted(0, 1, 2), [*marked_elsewhere, *heard(1)]).is_clean()
    for twice in (heard(1, life=1), heard(1, 1)):
        assert verdict(accepted(0, 1, 2), [*marked_elsewhere, *twice]).doubled == [1]


def test_messages_of_a_node_that_was_silent_for_long_may_come_after_newer_ones_in_their_order():
    sent = accepted(*range(6))
    assert verdict(sent, heard(0, 3, 4, 1, 2, 5), "persistent").reordered == [1, 2]
    assert verdict(sent, heard(0, 3, 4, 1, 2, 5), "persistent", order_given_up=True).is_clean()
    assert verdict(sent, heard(0, 3, 4, 2, 1, 5), "persistent", order_given_up=True).reordered == [1]
    assert verdict(sent, heard(0, 3, 4, 1, 1, 2, 5), "persistent", order_given_up=True).doubled == [1]
    assert verdict(sent, heard(0, 3, 4, 1, 5), "persistent", order_given_up=True).lost == {2}


def test_reordered_and_invented():
    assert verdict(accepted(0, 1, 2), heard(0, 2, 1)).reordered == [1]
    assert verdict(accepted(0), heard(0, 7)).invented == {7}


def test_a_gap_excuses_as_many_numbers_as_it_names_where_it_is():
    sent = accepted(*range(6), log="node-1")

    def gap(first, missed):
        return heard(first, log="node-1", missed=missed)

    whole = [*heard(0, log="node-1"), *gap(3, 2), *heard(4, 5, log="node-1")]
    assert verdict(sent, whole, "durable").is_clean()
    # More are gone than the gap names.
    beyond = [*heard(0, log="node-1"), *gap(4, 2), *heard(5, log="node-1")]
    assert verdict(sent, beyond, "durable").lost == {3}
    # A loss before or after the gap is not in it, however large it is said to be.
    assert verdict(sent, [*heard(0, 2, log="node-1"), *gap(4, 9), *heard(5, log="node-1")], "durable").lost == {1}
    assert verdict(sent, [*heard(0, log="node-1"), *gap(2, 9), *heard(3, 5, log="node-1")], "durable").lost == {4}
    # Nor is an event in it that another node keeps.
    two_logs = [*accepted(0, 1, log="node-1"), *accepted(2, log="node-2"), *accepted(3, log="node-1")]
    assert verdict(two_logs, [*heard(0, log="node-1"), *gap(3, 2)], "durable").lost == {2}
    # A number that came before from this log ends no gap of another one.
    assert verdict(two_logs, [*heard(0, log="node-1"), *heard(2, log="node-2"), *gap(3, 1)], "durable").is_clean()
