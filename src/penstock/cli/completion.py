"""``penstock completion``: the script that lets a shell complete commands, options and queues."""

from __future__ import annotations

import os
from enum import StrEnum
from typing import Annotated

import typer

from penstock.cli.options import Json, examples
from penstock.cli.output import say, say_json

EXAMPLES = examples(
    "penstock completion bash > ~/.local/share/bash-completion/completions/penstock",
    'eval "$(penstock completion bash)"',
    "penstock completion zsh > ~/.zfunc/_penstock",
    "penstock completion fish > ~/.config/fish/completions/penstock.fish",
    "penstock completion bash --json | jq -r .script",
)

VARIABLE = "_PENSTOCK_COMPLETE"  # which the script sets, and the parser looks for


class Shell(StrEnum):
    bash = "bash"
    zsh = "zsh"
    fish = "fish"


def prepare() -> None:
    """Before the parser looks: if the script has called us, it must know the shells."""
    if os.environ.get(VARIABLE):
        from typer._completion_classes import completion_init

        completion_init()


def completion(
    shell: Annotated[Shell, typer.Argument(help="For which shell.", show_default=False)], json: Json = False
) -> int:
    """Print a script for your shell: it completes commands, options and their values, and paths."""
    from typer._completion_shared import get_completion_script

    script = get_completion_script(prog_name="penstock", complete_var=VARIABLE, shell=shell.value)
    if json:
        say_json({"shell": shell.value, "script": script})
    else:
        say(script)
    return 0
