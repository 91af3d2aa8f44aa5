"""The list of calls: a line each, a composite's name once, text that stays text."""

from __future__ import annotations

from xml.etree import ElementTree

from npu_kit.render.call_list_picture import CallRow, call_list

SVG = "{http://www.w3.org/2000/svg}"


def row(number: int, composite: str = "", name: str = "y") -> CallRow:
    return CallRow(f"main:{number}", number, "nn.relu", name, "1x4 float32", composite, composite or "host", "")


def lines(*rows: CallRow) -> list[ElementTree.Element]:
    """The drawn calls, in order."""
    root = ElementTree.fromstring(call_list(rows, "Calls"))
    return [group for group in root.iter(f"{SVG}g") if group.get("data-key")]


def texts(line: ElementTree.Element) -> list[str]:
    return [text.text or "" for text in line.iter(f"{SVG}text")]


def fill(line: ElementTree.Element) -> str:
    rect = line.find(f"{SVG}rect")
    assert rect is not None
    return rect.get("fill", "")


def test_each_call_is_a_line_in_order_that_can_be_found_by_its_key() -> None:
    drawn = lines(row(0, "a#0"), row(1), row(2, "b#1"))
    assert [line.get("data-key") for line in drawn] == ["main:0", "main:1", "main:2"]
    tops = [float(line.find(f"{SVG}rect").get("y")) for line in drawn]  # type: ignore[union-attr, arg-type]
    assert tops == sorted(set(tops))


def test_a_composite_has_one_colour_and_its_name_once_where_its_calls_follow_each_other() -> None:
    drawn = lines(row(0, "a#0"), row(1, "a#0"), row(2, "b#1"), row(3, "a#0"))
    assert ["a#0" in texts(line) for line in drawn] == [True, False, False, True]
    assert fill(drawn[0]) == fill(drawn[1]) == fill(drawn[3]) != fill(drawn[2])


def test_a_call_on_the_host_says_so_and_is_dashed() -> None:
    host, taken = lines(row(0), row(1, "a#0"))
    assert "host" in texts(host)
    assert host.find(f"{SVG}rect").get("stroke-dasharray")  # type: ignore[union-attr]
    assert not taken.find(f"{SVG}rect").get("stroke-dasharray")  # type: ignore[union-attr]


def test_two_hosts_in_a_row_both_say_so() -> None:
    assert all("host" in texts(line) for line in lines(row(0), row(1)))


def test_names_cannot_become_markup_and_are_cut_to_their_column() -> None:
    picture = call_list([row(0, name="</text><script>x" + "long" * 40)], "<b>Calls")
    root = ElementTree.fromstring(picture)
    drawn = {element.tag.removeprefix(SVG) for element in root.iter()}
    assert drawn <= {"svg", "title", "desc", "g", "rect", "text", "path"}
    assert all(len(text.text or "") < 60 for text in root.iter(f"{SVG}text"))


def test_a_model_without_calls_says_so() -> None:
    assert "the model has no call" in call_list([], "Calls")


def test_the_place_in_a_table_of_hundreds_is_whole() -> None:
    one = CallRow("main:0", 0, "nn.softmax", "y", "1x4 float32", "softmax#0", "softmax#0", "pattern 126 of 131")
    assert "pattern 126 of 131" in texts(lines(one)[0])
