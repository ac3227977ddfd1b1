"""A message that nobody waits for any more goes to whom it is for, also if nothing else comes."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from sealbus import AclMessage, Agent, Filter, Message, Platform, ReceiveTimeout, on
from sealbus.life import ROW


@pytest.fixture
async def platform() -> AsyncIterator[Platform]:
    async with Platform() as platform:
        yield platform


class Reader(Agent):
    """Reads, and may wait for messages besides."""

    def __init__(self) -> None:
        super().__init__("reader")
        self.read: asyncio.Queue[str] = asyncio.Queue()

    async def next(self) -> str:
        """The next message that a handler got."""
        async with asyncio.timeout(60):
            return await self.read.get()


class SideBySide(Reader):
    @on("inform", concurrency=2)
    async def take(self, message: Message) -> None:
        self.read.put_nowait(message.text)


class InTurn(Reader):
    @on("inform")
    async def take(self, message: Message) -> None:
        self.read.put_nowait(message.text)


KINDS = [SideBySide, InTurn]


async def waiters(agent: Agent, *filters: Filter | None) -> list[asyncio.Task[Message]]:
    """Tasks that wait for messages, in this order."""
    tasks = [asyncio.create_task(agent.receive(filter)) for filter in filters]
    while len(agent._living.mailbox._waiters) < len(tasks):
        await asyncio.sleep(0)
    return tasks


def informs(*texts: str) -> list[AclMessage]:
    return [AclMessage("inform", "reader", text) for text in texts]


@pytest.mark.parametrize("kind", KINDS)
async def test_the_second_of_two_that_came_together(platform: Platform, kind: type[Reader]) -> None:
    reader, writer = await platform.start(kind()), await platform.start(Agent("writer"))
    (task,) = await waiters(reader, Filter("inform"))
    await writer.send_many(informs("one", "two", "three"))
    assert (await task).text == "one"
    assert [await reader.next(), await reader.next()] == ["two", "three"]


@pytest.mark.parametrize("kind", KINDS)
async def test_one_that_a_cancelled_waiter_was_told_of(
    platform: Platform, kind: type[Reader], monkeypatch: pytest.MonkeyPatch
) -> None:
    reader, writer = await platform.start(kind()), await platform.start(Agent("writer"))
    (task,) = await waiters(reader, Filter("inform"))
    mailbox = reader._living.mailbox
    hear = mailbox.hear

    def hear_and_cancel() -> None:
        hear()
        task.cancel()

    monkeypatch.setattr(mailbox, "hear", hear_and_cancel)
    await writer.send_many(informs("one"))
    assert await reader.next() == "one"
    assert task.cancelled()


async def test_one_that_a_waiter_without_a_filter_had_to_leave(platform: Platform) -> None:
    reader, writer = await platform.start(Agent("reader")), await platform.start(Agent("writer"))
    any_message, inform = await waiters(reader, None, Filter("inform"))
    await writer.send_many(informs("one", "two"))
    async with asyncio.timeout(60):
        assert (await inform).text == "one"
        assert (await any_message).text == "two"


@pytest.mark.parametrize("kind", KINDS)
async def test_those_that_came_while_a_move_was_refused(platform: Platform, kind: type[Reader]) -> None:
    reader, writer = await platform.start(kind()), await platform.start(Agent("writer"))
    life = reader._living
    life.moving = asyncio.get_running_loop().create_future()
    (task,) = await waiters(reader, Filter("inform"))
    await writer.send_many(informs("one", "two"))
    await asyncio.sleep(0.01)
    # As at the end of a move that did not take place.
    moving, life.moving = life.moving, None
    moving.set_result(None)
    life._open()
    life._news()
    life.mailbox.wake()
    assert (await task).text == "one"
    assert await reader.next() == "two"


@pytest.mark.parametrize("kind", KINDS)
async def test_nothing_is_looked_for_when_nothing_is_there(
    platform: Platform, kind: type[Reader], monkeypatch: pytest.MonkeyPatch
) -> None:
    reader, writer = await platform.start(kind()), await platform.start(Agent("writer"))
    looks = 0
    look = reader._living.look

    def count() -> None:
        nonlocal looks
        looks += 1
        look()

    monkeypatch.setattr(reader._living, "look", count)
    for _ in range(3):
        (task,) = await waiters(reader, Filter("inform"))
        looks = 0
        await writer.send_many(informs("one"))
        await task
        await asyncio.sleep(0.01)
        # It came, and nobody else could want it.
        assert looks == 1
    with pytest.raises(ReceiveTimeout):
        await reader.receive(Filter("request"), timeout=0.01)
    assert looks == 1


async def test_mail_is_told_of_once_to_the_one_who_looked_for_it(
    platform: Platform, monkeypatch: pytest.MonkeyPatch
) -> None:
    reader, writer = await platform.start(Agent("reader")), await platform.start(Agent("writer"))
    looks = 0
    look = reader._living.look

    def count() -> None:
        nonlocal looks
        looks += 1
        look()

    monkeypatch.setattr(reader._living, "look", count)
    (task,) = await waiters(reader, None)
    await writer.send_many(informs("one"))
    assert (await task).text == "one"
    # Nobody has looked since then.
    await writer.send_many(informs("two"))
    await asyncio.sleep(0.01)
    assert looks == 1
    assert (await reader.receive(timeout=60)).text == "two"
    (task,) = await waiters(reader, None)
    await writer.send_many(informs("three"))
    assert (await task).text == "three"


async def test_others_run_while_a_reader_takes_a_crowd_beside_reserved_messages(platform: Platform) -> None:
    reader, writer = await platform.start(Agent("reader")), await platform.start(Agent("writer"))
    life = reader._living
    give_back = life.mailbox.reserve(Filter("request"))
    await writer.send_many(informs(*["one"] * 3 * ROW))
    taken = 0
    taken_before: list[int] = []
    life.begin_turn()
    # The time of the turn is over.
    life._turn_ends = 0.0
    asyncio.get_running_loop().call_soon(lambda: taken_before.append(taken))
    for taken in range(1, 3 * ROW + 1):
        assert (await reader.receive(timeout=60)).text == "one"
    assert taken_before and taken_before[0] < 3 * ROW
    give_back()


async def test_others_get_what_was_reserved_once_it_is_so_no_longer(
    platform: Platform, monkeypatch: pytest.MonkeyPatch
) -> None:
    reader, writer = await platform.start(Agent("reader")), await platform.start(Agent("writer"))
    life = reader._living
    looked = asyncio.Event()
    look = life.look

    def note() -> None:
        look()
        looked.set()

    monkeypatch.setattr(life, "look", note)
    give_back = life.mailbox.reserve(Filter("inform"))
    task = asyncio.create_task(reader.receive())
    while len(life.mailbox._waiters) < 2:
        await asyncio.sleep(0)
    await writer.send_many(informs("one"))
    await looked.wait()
    assert not task.done()
    give_back()
    assert (await task).text == "one"


async def test_a_crowd_is_taken_in_order_in_whatever_way(platform: Platform) -> None:
    reader, writer = await platform.start(Agent("reader")), await platform.start(Agent("writer"))
    count = 3000
    await writer.send_many(
        AclMessage("inform", "reader", str(number), conversation_id=None if number % 3 else "third") for number in range(count)
    )
    third, in_turn, picked = Filter(conversation_id="third"), list[int](), list[int]()
    while len(in_turn) + len(picked) < count:
        in_turn.append(int((await reader.receive(timeout=60)).text))
        # Half of them are taken before anybody looks for a message behind the first.
        if len(in_turn) < count / 2:
            in_turn += [int(message.text) for message in await reader.receive_many(5)]
        elif reader._living.handle.has_mail(third):
            picked.append(int((await reader.receive(third, timeout=60)).text))
    assert in_turn == sorted(in_turn) and picked == sorted(picked)
    assert sorted(in_turn + picked) == list(range(count))
