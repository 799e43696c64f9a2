"""Settings of scales: tables change what was there, names replace it, and what is not a setting is refused."""

from dataclasses import dataclass

import pytest

from posteriax.studies.scales import read_scales


@dataclass(frozen=True)
class Net:
    width: int = 8
    depths: tuple[int, ...] = (1, 2)


@dataclass(frozen=True)
class Settings:
    seeds: int
    nets: tuple[Net, ...] = ()
    rates: tuple[tuple[str, float], ...] = ()


TEXT = """
[laptop]
seeds = 3
nets = ["@small", { width = 64 }]
rates = [["a", 0.1]]
[paper]
like = "laptop"
nets = { depths = [4] }
[smoke]
like = "paper"
seeds = 1
nets = ["@tiny"]
[named.small]
width = 16
depths = [3]
[named.tiny]
like = "small"
width = 2
[one_step]
nets = { width = 1 }
"""


@pytest.fixture
def write(tmp_path):
    def write(text):
        (tmp_path / "scales.toml").write_text(text)
        return tmp_path / "scales.toml"

    return write


def test_a_table_changes_what_it_names_and_a_name_replaces(write):
    scales = read_scales(write(TEXT), Settings)
    assert scales["laptop"] == Settings(3, (Net(16, (3,)), Net(64)), (("a", 0.1),))
    assert scales["paper"].nets == (Net(16, (4,)), Net(64, (4,)))
    assert scales["smoke"] == Settings(1, (Net(2, (3,)),), (("a", 0.1),))
    assert scales.one_step(scales["laptop"]).nets == (Net(1, (3,)), Net(1))
    assert list(scales) == ["laptop", "paper", "smoke"]


@pytest.mark.parametrize(
    "old, new, message",
    [
        ("width = 16", "widht = 16", "Net has no setting 'widht'; there are width, depths"),
        ("seeds = 3", "", "seeds"),
    ],
)
def test_what_is_not_a_setting_is_refused(write, old, new, message):
    with pytest.raises(ValueError, match=message):
        read_scales(write(TEXT.replace(old, new)), Settings)


def test_an_unknown_name_is_refused(write):
    with pytest.raises(ValueError, match="named 'medium'"):
        read_scales(write(TEXT.replace("@small", "@medium")), Settings)
