"""The demo in a real browser: its attacks appear as they are refused."""

from __future__ import annotations

import re
import subprocess
import sys

from playwright.sync_api import expect

from harness import DEADLINE, SEALBUS, clean_environment, wait_for


def test_the_demos_attacks_appear_as_they_are_refused(chromium, tmp_path):
    log = tmp_path / "demo.log"
    with log.open("wb") as output:
        demo = subprocess.Popen(
            [SEALBUS, "demo", "--window", "--level", "auth", "--python", sys.executable],
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=clean_environment(),
        )
    try:
        found = r"http://127\.0\.0\.1:\d+/#once=\S+"
        link = wait_for(lambda: re.search(found, log.read_text()), "the link", DEADLINE * 3, also=log.read_text)
        page = chromium.new_page()
        page.set_default_timeout(DEADLINE * 3000)
        page.goto(link[0])
        expect(page.get_by_role("heading", level=1)).to_have_text("Overview")
        page.evaluate("location.hash = '#/refusals'")
        refused = page.locator(".refusals li")
        # The list is short, and the attacks are quick: the filter finds the earlier ones.
        for reason in ("forged-sender", "not-proved", "unknown-issuer", "revoked"):
            page.get_by_role("combobox", name="Reason").select_option(reason)
            expect(refused.first).to_contain_text(reason)
            expect(refused.first).to_contain_text("What to do")
        wait_for(lambda: "Enter ends the platform" in log.read_text(), "the end of the attacks", DEADLINE * 3, also=log.read_text)
        page.close()
        # Enter, or nobody who could press it.
        demo.stdin.close()
        assert demo.wait(DEADLINE * 3) == 0, log.read_text()
        assert "every attack was refused" in log.read_text()
    finally:
        if demo.poll() is None:
            demo.terminate()
            demo.wait()


def test_the_window_of_the_demo_needs_the_level_of_the_attacks():
    done = subprocess.run([SEALBUS, "demo", "--window", "--level", "none"], capture_output=True, env=clean_environment(), timeout=DEADLINE, check=False)
    assert done.returncode == 2 and b"--level auth" in done.stderr
