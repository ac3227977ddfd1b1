"""The checker finds each fault in a history that has it."""

from history import LIFE, judge

FIRST, SECOND = ["life", 0], ["life", 1]


def accepted(*numbers):
    return [event for number in numbers for event in (["begun", number], ["accepted", number])]


def heard(*numbers):
    return [["heard", "source", number, False, 0] for number in numbers]


def verdict(sent, received, kind="direct"):
    return judge([FIRST, *sent], [FIRST, *received], "source", kind)


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


def test_doubled_reordered_and_invented():
    assert verdict(accepted(0, 1), heard(0, 1, 1)).doubled == [1]
    assert verdict(accepted(0, 1), [*heard(0, 1), ["heard", "source", 1, True, 0]]).is_clean()
    assert verdict(accepted(0, 1, 2), heard(0, 2, 1)).reordered == [1]
    assert verdict(accepted(0), heard(0, 7)).invented == {7}


def test_what_a_receiver_knows_to_have_missed_is_not_lost():
    received = [*heard(0), ["heard", "source", 3, False, 2]]
    assert verdict(accepted(0, 1, 2, 3), received, "channel").is_clean()
