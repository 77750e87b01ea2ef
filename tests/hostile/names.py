"""Names that files may hold and that something on the way out might obey."""

from __future__ import annotations

NAMES = (
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "</script><script>alert(1)</script>",
    "<!--<script>",
    "${alert(1)}",
    "{{7*7}}{% raw %}",
    "%{y}<extra></extra>",
    "javascript:alert(1)",
    "two\nlines\r\nand a tab\t",
    "nothing\x00after",
    "\x1b[31mred\x1b]0;title\x07\x9b2J",
    "[red]rich[/red] [/]",
    "\u202egnp.exe\u2066",
    "costs $x^{ and $y",
    "=cmd|' /C calc'!A0",
    "&amp; &#60;b&#62;",
)
OBEYED = "\x00\x07\x1b\x7f\x9b\u202e\u2066"  # by a terminal
