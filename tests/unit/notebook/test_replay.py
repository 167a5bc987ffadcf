"""Records in, outputs out."""

from __future__ import annotations

import json
from typing import Any

from gpucluster.api.schemas import StreamItem
from jupyter_gpucluster.replay import ALL, Limits, NotebookSink, Replay, TextSink


def record(kind: str, payload: Any) -> StreamItem:
    body = payload if isinstance(payload, bytes) else json.dumps(payload).encode()
    return StreamItem(type="record", kind=kind, payload=body, attempt=1)


def shown(
    records: list[StreamItem], limits: Limits = ALL, keep_last_error: bool = True
) -> list[dict[str, Any]]:
    sink = NotebookSink()
    replay = Replay(sink, prefix="p", where="%logs 7", limits=limits, keep_last_error=keep_last_error)
    for each in records:
        replay.record(each)
    replay.finish()
    return sink.outputs


def text_of(outputs: list[dict[str, Any]], name: str = "stdout") -> str:
    return "".join(
        each["text"] for each in outputs if each["output_type"] == "stream" and each["name"] == name
    )


def test_streams_keep_their_order_and_join():
    outputs = shown(
        [record("stdout", b"a"), record("stdout", b"b\n"), record("stderr", b"e\n"), record("stdout", b"c")]
    )
    assert [(each["name"], each["text"]) for each in outputs] == [
        ("stdout", "ab\n"),
        ("stderr", "e\n"),
        ("stdout", "c"),
    ]


def test_character_cut_in_two_arrives_whole():
    first, second = "é✓".encode()[:3], "é✓".encode()[3:]
    assert text_of(shown([record("stdout", first), record("stderr", b"-"), record("stdout", second)])) == "é✓"


def test_bytes_that_are_no_text_are_shown_as_replacement():
    assert text_of(shown([record("stdout", b"a\xffb"), record("stdout", b"\xc3")])) == "a\ufffdb\ufffd"


def test_carriage_returns_and_colours_pass_through():
    assert text_of(shown([record("stdout", b"\r 10%\r\x1b[31m 20%\x1b[0m")])) == "\r 10%\r\x1b[31m 20%\x1b[0m"


def test_update_replaces_the_display_of_its_id_only():
    outputs = shown([
        record("display", {"data": {"text/plain": "1"}, "metadata": {}, "display_id": "a"}),
        record("display", {"data": {"text/plain": "other"}, "metadata": {}, "display_id": "b"}),
        record("update", {"data": {"text/plain": "2"}, "metadata": {}, "display_id": "a"}),
    ])  # fmt: skip
    assert [each["data"]["text/plain"] for each in outputs] == ["2", "other"]


def test_clear_removes_what_came_before():
    assert (
        text_of(shown([record("stdout", b"old"), record("clear", {"wait": False}), record("stdout", b"new")]))
        == "new"
    )


def test_clear_with_wait_waits_for_the_next_output():
    before = [record("stdout", b"old"), record("clear", {"wait": True})]
    assert text_of(shown(before)) == "old"
    assert text_of(shown([*before, record("stdout", b"new")])) == "new"


def test_result_is_an_execute_result():
    outputs = shown(
        [record("display", {"data": {"text/plain": "42"}, "metadata": {}, "execute_result": True})]
    )
    assert [each["output_type"] for each in outputs] == ["execute_result"]


def test_long_output_keeps_head_and_tail_and_says_what_is_missing():
    lines = [f"line {number:06d}\n".encode() for number in range(2000)]
    outputs = shown([record("stdout", line) for line in lines], Limits(text_bytes=4000))
    text, notes = text_of(outputs), text_of(outputs, "stderr")
    assert text.startswith("line 000000\n")
    assert text.endswith("line 001999\n")
    assert len(text) <= 4000
    assert "%logs 7" in notes
    left_out = sum(map(len, lines)) - len(text)
    assert f"{left_out:,} bytes are not shown here" in notes


def test_end_of_one_long_line_is_shown():
    outputs = shown([record("stdout", b"x" * 9000), record("stdout", b"the end\n")], Limits(text_bytes=4000))
    assert text_of(outputs).endswith("xthe end\n")
    assert "5,008 bytes are not shown here" in text_of(outputs, "stderr")


def test_what_a_progress_bar_writes_over_does_not_count():
    bar = [record("stderr", f"\r{number:5d} of 20000".encode()) for number in range(20_000)]
    outputs = shown([*bar, record("stderr", b"\n"), record("stdout", b"done\n")], Limits(text_bytes=4000))
    assert text_of(outputs) == "done\n"
    assert "not shown" not in text_of(outputs, "stderr")
    assert text_of(outputs, "stderr").endswith("\r19999 of 20000\n")


def test_output_that_changes_between_streams_all_the_time_is_cut_as_well():
    records = [record(stream, b"x\n") for _ in range(500) for stream in ("stdout", "stderr")]
    outputs = shown(records, Limits(text_bytes=None, outputs=100))
    assert len(outputs) < 120
    assert "are not shown here; see %logs 7" in "".join(each["text"] for each in outputs)


def test_display_that_alone_is_too_big_is_shown_by_its_text():
    big = {"data": {"text/plain": "a table", "text/html": "x" * 5000}, "metadata": {}}
    for kind, extra in (("display", {}), ("display", {"execute_result": True})):
        (output, *_) = [
            each
            for each in shown([record(kind, {**big, **extra})], Limits(display_bytes=4000))
            if each["output_type"] != "stream"
        ]
        assert list(output["data"]) == ["text/plain"]
        assert output["data"]["text/plain"].startswith("a table\n[5,0")
        assert "%logs 7" in output["data"]["text/plain"]


def test_output_within_the_limit_has_no_note():
    assert text_of(shown([record("stdout", b"x" * 2990)], Limits(text_bytes=4000)), "stderr") == ""


def test_clear_gives_the_whole_budget_back():
    flood = [record("stdout", b"x" * 5000), record("clear", {"wait": False}), record("stdout", b"after\n")]
    outputs = shown(flood, Limits(text_bytes=4000))
    assert text_of(outputs) == "after\n"
    assert text_of(outputs, "stderr") == ""


def test_displays_over_the_budget_are_counted_and_the_last_is_shown():
    plots = [record("display", {"data": {"text/plain": f"{n:0>400}"}, "metadata": {}}) for n in range(10)]
    outputs = shown(plots, Limits(display_bytes=1500))
    displays = [int(each["data"]["text/plain"]) for each in outputs if each["output_type"] == "display_data"]
    assert displays == [0, 1, 2, 9]
    assert "7 displays are not shown" in text_of(outputs, "stderr")


def test_last_error_is_kept_for_whoever_raises_it():
    sink = NotebookSink()
    replay = Replay(sink, prefix="p", where="")
    replay.record(record("error", {"ename": "ValueError", "evalue": "no", "traceback": ["tb"]}))
    replay.finish()
    assert (replay.error.ename, replay.error.evalue, replay.error.traceback) == ("ValueError", "no", ["tb"])
    assert sink.outputs == []


def test_error_of_an_attempt_that_is_tried_again_is_printed_before_the_seam():
    sink = TextSink()
    replay = Replay(sink, prefix="p", where="")
    replay.record(record("error", {"ename": "ValueError", "evalue": "no", "traceback": ["the traceback"]}))
    replay.seam("attempt 2 on node-1 (attempt 1 failed)")
    replay.record(record("stdout", b"again\n"))
    replay.finish()
    assert sink.value == "the traceback\n— attempt 2 on node-1 (attempt 1 failed) —\nagain\n"
    assert replay.error is None


def test_kind_of_a_later_version_is_left_out():
    assert shown([record("hologram", {}), record("stdout", b"x")])[0]["text"] == "x"


def test_truncated_log_is_told():
    assert "more than its log takes" in text_of(shown([record("status", {"event": "truncated"})]), "stderr")


def test_log_that_is_gone_is_told_in_its_place():
    sink = NotebookSink()
    replay = Replay(sink, prefix="job", where="%logs 1")
    gone = StreamItem(
        type="gone", attempt=1, time_us=1_699_963_200_000_000, reason="the retention of 30 days"
    )
    replay.record(gone)
    replay.finish()
    assert (
        sink.outputs[0]["text"]
        == "[the log of attempt 1 was removed on 2023-11-14 by the retention of 30 days]\n"
    )
