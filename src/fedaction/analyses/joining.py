"""What joining brings, as a table, a sentence for whom, and a picture."""

# matplotlib's type stubs are partial.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.ticker import NullLocator

from fedaction.analyses.draw import MARKS, SOFT, canvas, colour, drawing, label, svg
from fedaction.analyses.finding import points
from fedaction.methods import title_of
from fedaction.runs.joining import Gain, Joining, ShareResult, Verdict

_PANELS = 6  # sites with a panel of their own
_CONTROLS = {"ridge": "ridge on the input", "majority": "commonest class"}


def write_tables(result: Joining, command: str) -> str:
    """Markdown: what was run, means by share and by number of sites, each site's own, and for whom it pays."""
    joined = result["methods"][1:]
    seeds = ", ".join(str(seed) for seed in result["seeds"])
    lines = [
        f"# What joining brings: {result['name']}",
        "",
        f"`{command}`, seeds {seeds}; {result['device_name']}, torch {result['torch']}.",
        "",
        "Test accuracy in per cent, means over sites and seeds, ± the standard deviation of the seeds' means. A gain "
        "is in points over training alone, with the 95 % interval for other test samples (as if of separate tests, "
        "so a little too wide; seeds are not in it).",
        "",
        *_table(
            ["share of each site's samples", "samples a site", "alone"]
            + [title_of(name) for name in joined]
            + [f"{title_of(name)} − alone" for name in joined]
            + [_CONTROLS[name] for name in _CONTROLS if name in result["shares"][0]["controls"]],
            [_share_row(setting, result["methods"]) for setting in result["shares"]],
        ),
        "",
        *(f"- {sentence}" for sentence in describe(result)),
        "",
    ]
    if result["counts"]:
        share = result["shares"][-1]["share"]
        lines += [
            f"## By the number of sites, with {100 * share:g} % of their samples",
            "",
            *_table(
                ["sites", "federations", "the same sites alone"]
                + [title_of(name) for name in joined]
                + [f"{title_of(name)} − alone" for name in joined],
                [
                    [str(own["count"]), str(len(own["draws"])), points(own["alone"])]
                    + [points(own["arms"][name]) for name in joined]
                    + [_gain(own["gains"][name]) for name in joined]
                    for own in result["counts"]
                ],
            ),
            "",
        ]
    for setting in result["shares"]:
        lines += [
            f"## Each site, with {100 * setting['share']:g} % of its samples",
            "",
            *_table(
                ["site", "trained on", "tested on", "alone"]
                + [title_of(name) for name in joined]
                + [f"{title_of(name)} − alone" for name in joined],
                [
                    [
                        site.replace("|", "/"),
                        str(setting["samples"].get(site, "")),
                        str(result["n"][site]),
                        *(points(setting["arms"][name]["clients"][site]) for name in result["methods"]),
                        *(_gain(gains[name]) for name in joined),
                    ]
                    for site, gains in setting["sites"].items()
                ],
            ),
            "",
        ]
    rates = [
        f"{100 * setting['share']:g} %: "
        + ", ".join(f"{title_of(name)} {arm['lr']:g}" for name, arm in setting["arms"].items())
        + f" ({result['rates'][format(setting['share'], 'g')]})"
        for setting in result["shares"]
    ]
    hashes = [
        f"{100 * setting['share']:g} %: "
        + ", ".join(f"{title_of(name)} {arm['configuration']}" for name, arm in setting["arms"].items())
        for setting in result["shares"]
    ]
    lines += [
        "## How",
        "",
        "Learning rates. " + "; ".join(rates) + ".",
        "",
        "Configurations. " + "; ".join(hashes) + ".",
    ]
    return "\n".join(lines) + "\n"


def describe(result: Joining) -> list[str]:
    """For whom joining pays, share by share, and what to be careful about; no more than the intervals say."""
    method = result["method"]
    sentences: list[str] = []
    for setting in result["shares"]:
        share, gain = f"With {100 * setting['share']:g} % of their samples", setting["gains"][method]
        by_verdict: dict[Verdict, list[str]] = {}
        for site, gains in setting["sites"].items():
            by_verdict.setdefault(gains[method]["verdict"], []).append(site)
        whom = [f"{verdict}: {_list(sites)}" for verdict, sites in sorted(by_verdict.items())]
        sentences.append(f"{share}: {title_of(method)} {_say(gain)} ({'; '.join(whom)}).")
        sentences += [f"{share}: {warning}" for warning in setting["warnings"]]
    return sentences


def _say(gain: Gain) -> str:
    """A mean gain, in words."""
    if gain["verdict"] == "not shown":
        return f"is not told from training alone on the mean ({_gain(gain)})"
    what = "brings" if gain["verdict"] == "helps" else "costs"
    low, high = sorted((abs(gain["low"]), abs(gain["high"])))
    return f"{what} {abs(100 * gain['value']):.1f} points on the mean ({100 * low:.1f} to {100 * high:.1f})"


def draw_joining(result: Joining) -> bytes:
    """An SVG: accuracy over the share of each site's samples, mean and by site, and over how many sites join."""
    with drawing():
        first = result["shares"][-1]
        sites = list(first["sites"]) if len(first["sites"]) <= _PANELS else []
        counted = bool(result["counts"])
        panels = 1 + counted + len(sites)
        columns = min(panels, 3)
        rows = -(-panels // columns)
        figure = canvas(3.1 * columns + 0.4, 2.6 * rows + 0.9)
        axes: list[Axes] = list(figure.subplots(rows, columns, squeeze=False, sharey=True).flatten())
        _draw_shares(axes[0], result)
        axes[0].set_title("mean of all sites")
        if counted:
            _draw_counts(axes[1], result)
        for panel, site in zip(axes[1 + counted :], sites, strict=False):
            _draw_shares(panel, result, site)
            panel.set_title(label(site, 28))
        for panel in axes[panels:]:
            panel.set_visible(False)
        for row in range(rows):
            axes[row * columns].set_ylabel("test accuracy, %")
        figure.legend(*axes[0].get_legend_handles_labels(), loc="outside upper center", ncols=4)
        words = (
            f"{result['name']}: test accuracy of sites alone and joined, seeds "
            f"{', '.join(str(seed) for seed in result['seeds'])}. Bands: 95 % for other test samples. Dashed: a "
            "ridge classifier on each site's own samples."
        )
        return svg(figure, words)


def _draw_shares(axes: Axes, result: Joining, site: str = "") -> None:
    """Lines over the share, of one site or of the mean."""
    x = [100 * setting["share"] for setting in result["shares"]]
    for place, method in enumerate(result["methods"]):
        arms = [setting["arms"][method] for setting in result["shares"]]
        values = [arm["clients"][site] if site else arm["mean"] for arm in arms]
        _draw_line(axes, x, values, place, method)
        if not site and all(arm["interval"] for arm in arms):
            low, high = zip(*(arm["interval"] or (0, 0) for arm in arms), strict=True)
            axes.fill_between(
                x, [100 * v for v in low], [100 * v for v in high], color=colour(place), alpha=0.12, linewidth=0
            )
    if not site and all("ridge" in setting["controls"] for setting in result["shares"]):
        ridge = [100 * setting["controls"]["ridge"] for setting in result["shares"]]
        axes.plot(x, ridge, color=SOFT, linewidth=1, linestyle=(0, (4, 3)), label="ridge")
    if len(x) > 1:
        axes.set_xscale("log")
    axes.set_xticks(x, [f"{value:g}" for value in x])
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set_xlabel("% of the site's training samples")
    axes.grid(visible=True, axis="y")


def _draw_counts(axes: Axes, result: Joining) -> None:
    """Lines over the number of sites that join; all of them are the share's own federation."""
    whole = result["shares"][-1]
    x = [*(own["count"] for own in result["counts"]), len(whole["sites"])]
    alone = [*(own["alone"] for own in result["counts"]), whole["arms"][result["methods"][0]]["mean"]]
    _draw_line(axes, x, alone, 0, result["methods"][0])
    for place, method in enumerate(result["methods"][1:], 1):
        values = [*(own["arms"][method] for own in result["counts"]), whole["arms"][method]["mean"]]
        _draw_line(axes, x, values, place, method)
    axes.set_xticks(x)
    axes.set_xlabel("sites that join")
    axes.set_title(f"with {100 * whole['share']:g} % of their samples")
    axes.grid(visible=True, axis="y")


def _draw_line(axes: Axes, x: Sequence[float], shares: Sequence[float], place: int, method: str) -> None:
    name = "alone" if place == 0 else title_of(method)
    y = [100 * value for value in shares]
    axes.plot(x, y, marker=MARKS[place % len(MARKS)], markersize=3.5, color=colour(place), label=name)


def _share_row(setting: ShareResult, methods: Sequence[str]) -> list[str]:
    counts = sorted(setting["samples"].values())
    few = f"{counts[0]} to {counts[-1]}" if counts and counts[0] != counts[-1] else str(counts[0]) if counts else ""
    arms = [setting["arms"][name] for name in methods]
    means = [points(arm["mean"]) + (f" ± {points(arm['std'])}" if arm["std"] is not None else "") for arm in arms]
    controls = [points(setting["controls"][name]) for name in _CONTROLS if name in setting["controls"]]
    return [
        f"{100 * setting['share']:g} %",
        few,
        *means,
        *(_gain(setting["gains"][n]) for n in methods[1:]),
        *controls,
    ]


def _gain(gain: Gain) -> str:
    """Points with their interval: +13.2 (9.1 to 17.0)."""
    return f"{100 * gain['value']:+.1f} ({100 * gain['low']:.1f} to {100 * gain['high']:.1f})"


def _list(names: Sequence[str], most: int = 8) -> str:
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    lines = [f"| {' | '.join(head)} |", f"|{'---|' * len(head)}"]
    return lines + [f"| {' | '.join(row)} |" for row in rows]
