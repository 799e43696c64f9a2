"""Numbers in words, for tables and verdicts."""

from collections.abc import Sequence

NUMBERS = ["no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"]


def which_chains(chains: Sequence[int]) -> str:
    """`Chain 2`, or `Chains 0, 1 and 3`."""
    names = [str(chain) for chain in chains]
    return f"Chain {names[0]}" if len(names) == 1 else f"Chains {', '.join(names[:-1])} and {names[-1]}"


def number(count: int) -> str:
    return NUMBERS[count] if count < len(NUMBERS) else str(count)


def percent(share: float) -> str:
    """
    >>> percent(0.14), percent(0.0042), percent(1.0), percent(0.999)
    ('14 %', '0.42 %', '100 %', '99.9 %')
    """
    digits = f"{100 * share:.2g}" if share < 0.1 else f"{100 * share:.0f}"
    return f"{100 * share:.3g} %" if digits == "100" and share < 1.0 else f"{digits} %"


def shown(rhat: float) -> str:
    """An R-hat with the digits that matter: more near 1, fewer if chains are far apart.

    >>> shown(1.0042), shown(1.18), shown(23.7), shown(float("inf"))
    ('1.004', '1.18', '24', 'inf')
    """
    return f"{rhat:.3f}" if rhat < 1.1 else f"{rhat:.2f}" if rhat < 10 else f"{rhat:.2g}"
