"""Reports that a page has to make sense of: of almost nothing, of a great deal, with names that nobody should have."""

from pathlib import Path

from tests.lab import (
    CONFIG,
    DAY_MS,
    HOUR_MS,
    MONDAY_MS,
    NOON_MS,
    Job,
    Report,
    busy,
    free,
    held,
    lost,
    report_of,
    series,
    tick,
    write,
)

HOSTILE = ["</title><script>alert(1)</script>", '" onload="alert(1)', "]]><!--", "&lt;b&gt;", "' style='x", "</svg>"]
CARDS, PEOPLE = 128, 400


def one_tick(folder: Path) -> Report:
    """One card, seen once in a week."""
    write(folder, [tick(NOON_MS, held())])
    return report_of(folder, MONDAY_MS, MONDAY_MS + 7 * DAY_MS)


def one_card(folder: Path) -> Report:
    """A card on which one person works from nine to two and goes home at eight, all of a week."""
    hours = [busy() if 9 <= hour < 14 else held() if 14 <= hour < 20 else free() for hour in range(24)]
    ticks = [tick(MONDAY_MS + hour * HOUR_MS, hours[hour % 24], interval_ms=HOUR_MS) for hour in range(7 * 24)]
    write(folder, ticks)
    return report_of(folder, MONDAY_MS, MONDAY_MS + 7 * DAY_MS)


def crowd(folder: Path) -> Report:
    """128 cards and 400 people, who change every six hours."""
    ticks = []
    for hour in range(0, 4 * 24, 6):
        cards = []
        for index in range(CARDS):
            number = (index + CARDS * hour // 6) % PEOPLE
            job = Job(1000 + number, f"person{number:03}", uid=2000 + number)
            kinds = [held(job, index=index), busy(job, index=index), free(index), lost(index)]
            cards.append(kinds[(index + hour // 6) % 4])
        ticks += series(MONDAY_MS + hour * HOUR_MS, 6, *cards, every_ms=HOUR_MS, interval_ms=HOUR_MS)
    write(folder, ticks)
    return report_of(folder, MONDAY_MS, MONDAY_MS + 4 * DAY_MS)


def year_of_gaps(folder: Path) -> Report:
    """An hour and a half of each month."""
    ticks = [one for month in range(12) for one in series(MONDAY_MS + month * 30 * DAY_MS, 90, held(), free(1))]
    write(folder, ticks)
    return report_of(folder, MONDAY_MS, MONDAY_MS + 365 * DAY_MS)


def bad_names(folder: Path) -> Report:
    """Names that are markup, and names without an end; with a price."""
    names = [f"!{'x' * 299}", *HOSTILE, "\u5c0f\u660e" * 60]
    cards = [held(Job(100 + n, name, command=name[:15], uid=3000 + n), index=n) for n, name in enumerate(names)]
    write(folder, series(MONDAY_MS, 3 * 24, *cards, every_ms=HOUR_MS, interval_ms=HOUR_MS))
    config = CONFIG._replace(price_per_gpu_hour=2.5, currency="EUR")
    return report_of(folder, MONDAY_MS, MONDAY_MS + 3 * DAY_MS, config=config)


ODD_REPORTS = {make.__name__: make for make in (one_tick, one_card, crowd, year_of_gaps, bad_names)}
