"""Tables that Java and ours write by turns are, to Java, as those that Java alone has written.

`make differential` and `make soak` run the same test with more histories; the machine needs Maven and a JDK.
"""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from support.java.histories import History, random_histories
from support.java.live import LiveJava
from support.java.twins import TwinTally, twins_differ
from support.samples import IS_DIFFERENTIAL, drawn_kinds, histories

pytestmark = [pytest.mark.java, pytest.mark.soak]

KEYED = ("deduplicate", "partial-update", "aggregation", "first-row")
VECTORS = "deletion vectors"
FAMILIES = ("append", *KEYED, "dynamic", "postpone", "variants", "containers", "blobs", VECTORS)
LONG = IS_DIFFERENTIAL
DRAWN = drawn_kinds("twins", FAMILIES, 2)
BUDGET = settings(
    deadline=None,
    derandomize=not LONG,
    max_examples=histories(4, len(DRAWN)),
    phases=(Phase.generate, Phase.shrink),
    print_blob=False,
    suppress_health_check=list(HealthCheck),
)


def _drawn(family: str) -> st.SearchStrategy[History]:
    if family == VECTORS:
        marked = st.fixed_dictionaries(
            {
                "deletion-vectors.enabled": st.just("true"),
                "deletion-vectors.bitmap64": st.sampled_from(["false", "true"]),
                "changelog-producer": st.sampled_from(["none", "input", "lookup", "lookup"]),
            }
        )
        keyed = st.sampled_from([each for each in KEYED if each != "first-row"])
        return st.builds(_with_options, keyed.flatmap(random_histories), marked)
    if family != "dynamic":
        return random_histories(family)
    options = st.fixed_dictionaries(
        {"bucket": st.just("-1"), "dynamic-bucket.target-row-num": st.sampled_from(["1", "2", "5"])},
        optional={"dynamic-bucket.max-buckets": st.sampled_from(["2", "3"])},
    )
    return st.builds(_with_options, st.sampled_from(KEYED).flatmap(random_histories), options)


def _with_options(history: History, options: dict[str, str]) -> History:
    return replace(history, options={**history.options, **options})


@pytest.mark.parametrize("family", DRAWN)
def test_java_finds_what_ours_wrote_as_its_own(java: LiveJava, family: str) -> None:
    tally = TwinTally()
    least = 3 if family == VECTORS else 2  # which is about compactions

    @BUDGET
    @given(_drawn(family), st.integers(0, 2**16 - 1).map(lambda bits: bits | least))
    def compare(history: History, turns: int) -> None:
        found = twins_differ(java, history, turns, tally)
        if found:
            pytest.fail("\n".join([json.dumps(history.to_json()), str(turns), *found]), pytrace=False)

    try:
        compare()
    finally:
        print(f"{family}: {tally}")
    assert tally.written or not LONG
