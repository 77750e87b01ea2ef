"""Every claim is found, and nothing is concluded from what was not run."""

from __future__ import annotations

from parallelrnn.lab import paper
from parallelrnn.lab.claims.verdict import NOT_RUN, UNKNOWN
from tests.lab.claims.findings import everything


def test_nothing_is_known_without_runs() -> None:
    told = everything([])
    assert len(told) > 40
    assert {one.verdict for one in told} == {UNKNOWN}
    assert {one.ours for one in told} == {NOT_RUN}
    assert all(one.rule for one in told)


def test_every_claim_has_a_finding_and_every_finding_a_claim() -> None:
    claims = [claim for some in paper.CLAIMS.values() for claim in some.values()]
    assert len(set(claims)) == len(claims)
    assert {one.claim for one in everything([])} == set(claims)
    texts = [(one.text, one.claim.place) for one in everything([])]
    assert len(set(texts)) == len(texts)
