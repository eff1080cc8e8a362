"""Power cuts on ext4 and XFS (issue of S6, S7): what was confirmed is there after the restore, nothing is invented,
batches are whole, no id is given twice. ``power_cuts.py`` says how it is done and what it can and cannot show."""

import random
from pathlib import Path

import pytest

from tests.crash.power_cuts import CUTS_EACH, KINDS, power_cuts, why_not

CUTS = CUTS_EACH  # one queue, restored and cut again each time
CUTS_SOAK = 100


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    if reason := why_not(request.param):
        pytest.skip(reason)
    return request.param


@pytest.fixture
def seed() -> int:
    """Another one in each run; a failure names it."""
    return random.SystemRandom().randrange(1 << 32)


def test_what_was_confirmed_survives_power_cuts(kind: str, tmp_path: Path, seed: int) -> None:
    counts = power_cuts(cuts=CUTS, kind=kind, seed=seed, where=tmp_path)
    assert counts["cuts"] == CUTS
    assert counts["confirmed"] > 0, "nothing was confirmed before a cut: this shows nothing"


@pytest.mark.soak
@pytest.mark.timeout(1800)
def test_what_was_confirmed_survives_a_hundred_power_cuts(kind: str, tmp_path: Path, seed: int) -> None:
    counts = power_cuts(cuts=CUTS_SOAK, kind=kind, seed=seed, where=tmp_path)
    print(kind, counts)
    assert counts["cuts"] == CUTS_SOAK
    assert counts["confirmed"] > CUTS_SOAK
