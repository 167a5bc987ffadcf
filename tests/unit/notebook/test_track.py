"""Step reports as small pictures."""

from __future__ import annotations

from unit.notebook.views import progress

from jupyter_gpucluster.track import MAX_POINTS, MAX_REPORTS, Track


def points_of(track: Track, at: int = 0) -> list[tuple[float, float]]:
    drawn = track.sparklines()[at].points.split(" ")
    return [(float(x), float(y)) for x, y in (point.split(",") for point in drawn)]


def test_falling_loss_falls_from_the_upper_left_to_the_lower_right():
    points = points_of(Track(progress(n, time_s=n, loss=10 - n) for n in range(1, 6)))
    assert (points[0], points[-1]) == ((1.5, 1.5), (98.5, 18.5))
    assert points == sorted(points)


def test_long_life_is_thinned_evenly_and_the_newest_report_stays():
    reports = [progress(n, time_s=n, loss=n) for n in range(1, 10_001)]
    track = Track(reports)
    assert len(track._kept) <= MAX_REPORTS
    assert (track._kept[0], track._kept[-1]) == (reports[0], reports[-1])
    gaps = {later.step - earlier.step for earlier, later in zip(track._kept, track._kept[1:-1], strict=False)}
    assert len(gaps) == 1
    points = points_of(track)
    assert len(points) <= MAX_POINTS + 1
    assert points[-1] == (98.5, 1.5)


def test_loss_comes_first_and_what_is_no_number_is_left_out():
    reports = [progress(n, time_s=n, accuracy=n, loss=float("nan") if n == 2 else n) for n in (1, 2, 3)]
    lines = Track(reports).sparklines()
    assert [(line.name, line.value) for line in lines] == [("loss", "3"), ("accuracy", "3")]
    assert len(points_of(Track(reports))) == 2


def test_one_value_alone_has_no_picture_and_equal_ones_are_a_level_line():
    assert Track([progress(1, time_s=1, loss=1)]).sparklines() == []
    assert {y for _, y in points_of(Track(progress(n, time_s=n, loss=5) for n in (1, 2, 3)))} == {10.0}


def test_older_report_changes_nothing_and_a_new_attempt_starts_anew():
    track = Track(progress(n, time_s=n, loss=n) for n in (1, 2, 3))
    track.add(progress(1, time_s=2, loss=9))
    track.add(None)
    assert len(track._kept) == 3
    track.add(progress(1, time_s=10, loss=9))
    assert len(track._kept) == 1


def test_names_of_metrics_are_escaped():
    from unit.notebook.views import job

    from jupyter_gpucluster.card import Card

    reports = [progress(n, time_s=n, **{"<b>": n}) for n in (1, 2)]
    card = Card()
    card.update(job(progress=reports[-1]))
    assert "<b>" not in card.html(0, sparklines=Track(reports).sparklines())
