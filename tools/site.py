"""Hooks of the documentation site: the README is its first page, and links to files outside of docs lead to the repository."""

import pathlib
import posixpath
import re

from mkdocs.structure.files import File

ROOT = pathlib.Path(__file__).parent.parent
REPOSITORY = "https://github.com/tko-orchestrator/tko/blob/main/"
LINK = re.compile(r"\]\(([^)#:\s]+)(#[^)\s]*)?\)")


def on_files(files, config):
    files.append(File.generated(config, "index.md", content=(ROOT / "README.md").read_text()))
    return files


def on_page_markdown(markdown, page, config, files):
    source = page.file.src_uri
    folder = "." if source == "index.md" else posixpath.dirname("docs/" + source)

    def replace(match):
        target = posixpath.normpath(posixpath.join(folder, match[1]))
        if target == "README.md":
            target = "docs/index.md"
        if target == "docs/adr":
            target = "docs/adr/README.md"
        if target.startswith("docs/"):
            target = posixpath.relpath(target, "docs" if folder == "." else folder)
        else:
            target = REPOSITORY + target
        return f"]({target}{match[2] or ''})"

    # marks of blocks and comments are for the tests
    markdown = re.sub(r"(?m)^```(\w+) \w+$", r"```\1", markdown)
    markdown = re.sub(r"(?m)^<!-- not run: .* -->\n", "", markdown)
    return LINK.sub(replace, markdown)
