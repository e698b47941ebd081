"""What findings predict of the loaders, against the loaders' own plans and accounts."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.makers.training_jobs import Recipe, trace_of
from vanidl.advice import own_loaders
from vanidl.advice.facts import Facts
from vanidl.analyses.results import analyse

pytest.importorskip("torch", reason="the loaders need PyTorch")
from vanidl_loaders.scheduled import PlanSettings, make_plan

SHUFFLED = Recipe(workers=0, ranks=4, fresh=False, epochs=3, steps=8)


def facts(recipe: Recipe) -> Facts:
    trace = trace_of(recipe)
    return Facts(trace, analyse(trace))


@pytest.mark.parametrize("share", own_loaders.BUFFERS)
def test_scheduled_saves_what_its_plan_does_not_read(share):
    samples = SHUFFLED.ranks * SHUFFLED.steps * SHUFFLED.batch
    settings = PlanSettings(
        samples=samples, ranks=SHUFFLED.ranks, batch=SHUFFLED.batch, epochs=SHUFFLED.epochs,
        buffer=round(share * samples),
    )  # fmt: skip
    plan = make_plan(settings)
    read = sum(int(s.loads.sum()) for e in range(SHUFFLED.epochs) for s in plan.steps(e))
    saved = (samples * SHUFFLED.epochs - read) * SHUFFLED.sample_nbytes
    found = own_loaders.predict_scheduled(facts(SHUFFLED))
    assert found["at_buffer_of_different_bytes"][f"{share:.0%}"]["bytes_not_read"] == saved


def test_nothing_is_saved_where_nothing_is_read_again():
    assert own_loaders.predict_scheduled(facts(replace(SHUFFLED, fresh=True))) is None


def test_partial_local_shuffling_stores_a_part_and_exchanges_a_tenth_of_it():
    found = own_loaders.predict_pls(facts(SHUFFLED))
    part = SHUFFLED.steps * SHUFFLED.batch * SHUFFLED.sample_nbytes
    assert found["stored_bytes_a_rank"] == pytest.approx(1.1 * part)
    assert found["exchanged_bytes_a_rank_and_epoch"] == pytest.approx(0.1 * part)
    assert found["shared_storage_bytes_not_read"] == 2 * 4 * part


def test_spatial_ranks_read_their_slab_of_every_sample():
    found = own_loaders.predict_spatial(facts(replace(SHUFFLED, who_reads="same", epochs=1)))
    assert found["bytes_a_rank_now"] == 4 * found["bytes_a_rank_then"]


def test_decoders_read_the_bytes_at_their_ratio():
    found = own_loaders.predict_encoded(facts(SHUFFLED))
    assert found["bytes_read_then"]["cosmoflow"] == round(found["bytes_read_now"] / 3.7)


@pytest.mark.parametrize("predict", [own_loaders.predict_pls, own_loaders.predict_spatial])
def test_one_rank_has_nobody_to_share_with(predict):
    assert predict(facts(replace(SHUFFLED, ranks=1))) is None


def test_loaders_are_named_as_the_command_line_names_them():
    from vanidl_loaders.loader.registry import LOADERS

    shuffled = facts(SHUFFLED)
    found = [
        f(shuffled)
        for f in (
            own_loaders.predict_scheduled,
            own_loaders.predict_pls,
            own_loaders.predict_spatial,
        )
    ]
    found.append(own_loaders.predict_encoded(shuffled))
    assert {prediction["loader"] for prediction in found} <= set(LOADERS)
