"""The steps that the manual's generator does not take by itself."""

import posixpath
import re
import runpy
from pathlib import Path

REPOSITORY = "https://github.com/sealbus/sealbus/blob/main/"
LINK = re.compile(r"\]\((?!https?:|mailto:|#)([^)\s]+)\)")
#: The mark in a page for a list that is read from the code, and the script beside this one that reads the list.
LISTS = {"<!-- the errors of the code -->": "errors.py", "<!-- the names of the crate -->": "rust_names.py"}
ROLE = re.compile(r":(?:class|meth|func|attr|exc|mod):<code>~?([^<]*)</code>")


def on_page_markdown(markdown: str, page, config, files) -> str:
    """Links to files that are not pages lead to the repository; lists read from the code stand where a page asks for them."""
    for mark, script in LISTS.items():
        if mark in markdown:
            markdown = markdown.replace(mark, runpy.run_path(str(Path(__file__).with_name(script)))["page"]())

    def target(link: re.Match[str]) -> str:
        path = posixpath.normpath(posixpath.join("docs", posixpath.dirname(page.file.src_uri), link[1]))
        return link[0] if path.startswith("docs/") else f"]({REPOSITORY}{path})"

    return LINK.sub(target, markdown)


def on_page_content(html: str, page, config, files) -> str:
    """Docstrings name classes and methods by Sphinx's roles."""
    return ROLE.sub(lambda role: f"<code>{role[1].removeprefix('sealbus.')}</code>", html)


def on_post_page(output: str, page, config) -> str:
    """Nothing is loaded from other sites."""
    return output.replace('<script src="https://unpkg.com/iframe-worker/shim"></script>', "")
