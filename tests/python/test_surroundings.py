"""Sealbus in its surroundings: other systems' selectors, loops that run already, and scripts without async."""

import asyncio
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from typing import Any

import pytest

import sealbus
from sealbus import (
    AclMessage,
    Agent,
    AgentFailed,
    Filter,
    Message,
    Performative,
    Platform,
    PlatformError,
    ServiceDescription,
    on,
)
from sealbus.pump import Pump

# A system without what only Linux has.
ELSEWHERE = """
import os, select, sys
del select.epoll, os.register_at_fork
assert "selectors" not in sys.modules
import selectors
assert selectors.DefaultSelector is selectors.PollSelector
import sealbus

class Greeter(sealbus.Agent):
    async def on_message(self, message):
        await self.reply(message, "inform", "hello")

class Guest(sealbus.Agent):
    async def setup(self):
        for _ in range(100):
            answer = await self.request(sealbus.AclMessage("request", "greeter"), timeout=60)
        print(answer.text)
        self.stop_all()

assert not sealbus.EventLoop().selector.drives
sealbus.run(Greeter("greeter"), Guest("guest"))
"""


class Greeter(Agent):
    async def setup(self) -> None:
        await self.df.register(ServiceDescription("greetings", "greeter"))

    @on(Performative.REQUEST)
    async def greet(self, message: Message) -> None:
        await self.reply(message, Performative.INFORM, f"hello {message.text}")


def test_a_system_without_epoll() -> None:
    done = subprocess.run(
        [sys.executable, "-c", ELSEWHERE], capture_output=True, text=True, timeout=180, check=False
    )
    assert (done.returncode, done.stdout) == (0, "hello\n"), done.stderr


def test_a_loop_that_watches_no_descriptors_is_refused() -> None:
    class Proactor(asyncio.SelectorEventLoop):
        def add_reader(self, *arguments: Any) -> None:  # type: ignore[override]
            # As asyncio's loop on Windows does it.
            raise NotImplementedError

    loop = Proactor()
    try:
        with pytest.raises(PlatformError, match="Proactor, which watches no descriptors"):
            Pump(loop)
    finally:
        loop.close()


async def test_a_loop_that_runs_already_is_used() -> None:
    with pytest.raises(PlatformError, match=r"await Platform\(\)\.open\(\)"):
        sealbus.run(Greeter("greeter"))
    platform = await Platform().open()
    with pytest.raises(PlatformError, match="opened before"):
        await platform.open()
    await platform.start(Greeter("greeter"))
    anna = await platform.start(Agent("anna"))
    reply = await anna.request(AclMessage("request", "greeter", "anna"), timeout=60)
    assert reply.text == "hello anna"
    await platform.close()
    await platform.close()


async def test_closing_tells_of_agents_that_failed() -> None:
    class Faulty(Agent):
        async def setup(self) -> None:
            raise ValueError("out of order")

    platform = await Platform().open()
    await platform.start(Faulty())
    await platform.wait()
    with pytest.raises(AgentFailed, match="out of order"):
        await platform.close()
    async with Platform() as closed_early:
        await closed_early.start(Agent("anna"))
        await closed_early.close()


# ----- scripts


def test_a_script_speaks_without_async() -> None:
    heard: list[str] = []

    class Hearing(Agent):
        @sealbus.on_event("/news")
        async def news(self, event: sealbus.ChannelEvent) -> None:
            heard.append(event.text)
            await self.send(AclMessage("inform", "script", "heard"))

    with sealbus.sync.Platform() as platform:
        platform.start(Greeter("greeter"))
        assert platform.request(AclMessage("request", "greeter", "script"), timeout=60).text == "hello script"
        (found,) = platform.search("greeter")
        assert found.name == platform.agent.peer("greeter")
        platform.start(Hearing())
        assert platform.publish("/news", "now", properties={"n": 1}).here == 1
        assert platform.receive(Filter("inform"), timeout=60).text == "heard"
        with pytest.raises(TimeoutError):
            platform.receive(timeout=0.01)
        platform.send(AclMessage("request", "greeter", "later"))
        assert platform.receive(timeout=60).text == "hello later"
    assert heard == ["now"]
    with pytest.raises(PlatformError, match="with sealbus"):
        platform.send(AclMessage("inform", "greeter"))


def test_threads_share_a_script() -> None:
    with sealbus.sync.Platform() as platform:
        platform.start(Greeter("greeter"))
        answers: list[str] = []

        def ask(number: int) -> None:
            reply = platform.request(AclMessage("request", "greeter", str(number)), timeout=60)
            answers.append(reply.text)

        threads = [threading.Thread(target=ask, args=(number,)) for number in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(answers) == [f"hello {number}" for number in range(8)]


def test_a_script_learns_of_failures() -> None:
    class Faulty(Agent):
        async def setup(self) -> None:
            raise ValueError("out of order")

    with pytest.raises(AgentFailed, match="out of order"), sealbus.sync.Platform() as platform:
        platform.start(Faulty())


def test_the_exception_of_a_scripts_block_is_raised() -> None:
    class Faulty(Agent):
        async def setup(self) -> None:
            raise ValueError("out of order")

    with pytest.raises(KeyError), sealbus.sync.Platform() as platform:
        platform.start(Faulty())
        raise KeyError


def test_an_agent_of_a_script_does_not_wait_for_itself() -> None:
    heard: list[str] = []

    def speak() -> None:
        with sealbus.sync.Platform() as platform:

            class Confused(Agent):
                async def setup(self) -> None:
                    try:
                        platform.send(AclMessage("inform", "script"))
                    except PlatformError as problem:
                        await self.send(AclMessage("inform", "script", str(problem)))

            platform.start(Confused())
            heard.append(platform.receive(timeout=60).text)

    # Without the error, nothing in there would go on.
    thread = threading.Thread(target=speak, daemon=True)
    thread.start()
    thread.join(60)
    assert heard == ["an agent here would wait for itself: use its own methods, with 'await'"]


def test_an_agent_of_a_script_does_not_close_it() -> None:
    heard: list[str] = []

    def speak() -> None:
        with sealbus.sync.Platform() as platform:

            class Confused(Agent):
                async def setup(self) -> None:
                    with pytest.raises(PlatformError, match="would wait for itself"):
                        platform.close()

            platform.start(Confused())
            platform.start(Greeter("greeter"))
            heard.append(platform.request(AclMessage("request", "greeter", "script"), timeout=60).text)

    # Without its loop, the script would wait for ever.
    thread = threading.Thread(target=speak, daemon=True)
    thread.start()
    thread.join(60)
    assert heard == ["hello script"]


def test_the_end_of_a_script_leaves_no_call_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[str] = []
    platform = sealbus.sync.Platform().open()

    def call(work: Callable[[], object]) -> threading.Thread:
        def run() -> None:
            try:
                work()
            except PlatformError as problem:
                told.append(str(problem))

        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        return thread

    begun = threading.Event()

    async def wait() -> None:
        begun.set()
        await asyncio.Event().wait()

    waits = call(lambda: platform._wait(wait()))
    assert begun.wait(60)
    agents = platform._thread
    assert agents is not None
    join = agents.join

    def join_slowly() -> None:
        join()
        # The loop has stopped, and is not closed.
        call(lambda: platform.send(AclMessage("inform", "script"))).join(60)

    monkeypatch.setattr(agents, "join", join_slowly)
    platform.close()
    waits.join(60)
    assert len(told) == 2 and all("not on a platform" in problem for problem in told), told


async def test_a_script_may_run_beside_a_loop() -> None:
    def speak() -> str:
        with sealbus.sync.Platform() as platform:
            platform.start(Greeter("greeter"))
            return platform.request(AclMessage("request", "greeter", "you"), timeout=60).text

    assert await asyncio.to_thread(speak) == "hello you"


# ----- the log

LOGGING = """
import asyncio, logging, sys
import sealbus

class Hearing(logging.Handler):
    def emit(self, record):
        print(record.name, record.levelname, record.getMessage())

logging.basicConfig(level=logging.WARNING, handlers=[Hearing()])
logging.getLogger("sealbus").setLevel(logging.INFO)

async def main():
    async with sealbus.Platform() as platform:
        await platform.start(sealbus.Agent("anna"))

with asyncio.Runner(loop_factory=LOOP) as runner:
    runner.run(main())
"""


@pytest.mark.parametrize("loop", ["sealbus.EventLoop", "asyncio.new_event_loop"])
def test_the_native_log_comes_in_logging(loop: str) -> None:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("SEALBUS_")}
    done = subprocess.run(
        [sys.executable, "-c", LOGGING.replace("LOOP", loop)],
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
        env=kept,
    )
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert any(line.startswith("sealbus.certification INFO") and "made a key pair" in line for line in lines), lines
    assert all(line.startswith("sealbus") for line in lines), lines
    assert done.stderr == ""
