from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from webgym_workers.observer.instruction import Instruction, akin, attribute_words


def test_spans_are_found_in_order_and_told_apart_by_case() -> None:
    instruction = Instruction('Click "Ok", not "ok", then the bold one.', emphasised=("bold one",))
    assert instruction.spans == ("Ok", "ok", "bold one")
    assert instruction.match("Ok").equals == 1.0
    assert instruction.match("OK").equals == 0.0
    assert instruction.match("okay").contained_caseless == 0.0


@pytest.mark.parametrize(
    ("text", "caption", "contained", "caseless"),
    [
        ("Select ok and click Submit.", "ok", 1.0, 1.0),
        ("Select ok and click Submit.", "Ok", 0.0, 1.0),
        ("Select okay and click Submit.", "ok", 0.0, 0.0),
        ("Select Bob>Jane", "Jane", 1.0, 1.0),
        ("Click on Tab #2.", "Tab #2", 1.0, 1.0),
        ("Select a,b and go", "a,b", 1.0, 1.0),
    ],
)
def test_containment_is_by_whole_words(text: str, caption: str, contained: float, caseless: float) -> None:
    match = Instruction(text).match(caption)
    assert (match.contained, match.contained_caseless) == (contained, caseless)


def test_order_falls_along_the_instruction() -> None:
    instruction = Instruction("Select Bob>Jane>Lia")
    orders = [instruction.match(name).order for name in ("Bob", "Jane", "Lia")]
    assert orders == sorted(orders, reverse=True)
    assert orders[-1] > 0
    assert instruction.match("Zoe").order == 0


@pytest.mark.parametrize(
    ("text", "emphasised", "expected"),
    [
        ('Enter the username "keli" and the password "3hI" into the text fields.', (), ("keli", "3hI")),
        ("Enter 8:22 AM as the time and press submit.", (), ("8:22 AM",)),
        ("Select Saint Lucia from the list and click Submit.", (), ("Saint Lucia",)),
        ("Search for drama movies directed by Holloway from year 2011.", ("drama", "Holloway", "2011"),
         ("drama", "Holloway", "2011")),
    ],
)  # fmt: skip
def test_candidates_begin_with_what_is_typed(
    text: str, emphasised: tuple[str, ...], expected: tuple[str, ...]
) -> None:
    assert Instruction(text, emphasised).candidates(8)[: len(expected)] == expected


def test_options_that_the_instruction_names_are_candidates() -> None:
    instruction = Instruction("Select new york from the list")
    assert instruction.candidates(8, ("new york", "york", "Paris"))[0] == "new york"
    assert "Paris" not in instruction.candidates(8, ("new york", "york", "Paris"))


def test_attributes_match_by_word_and_synonym() -> None:
    instruction = Instruction('Find the email by "Bob" and click the trash icon to delete it.')
    assert instruction.match_attributes("email-actions trash", "span") == 0.5
    assert instruction.match_attributes("star", "span") == 0.0
    assert Instruction('Click on a "textarea" widget.').match_attributes("", "textarea") == 1.0
    assert attribute_words("emailForward ui-icon-closethick") >= {"email", "forward", "icon", "closethick"}


def test_words_near_a_text_tell_the_field() -> None:
    instruction = Instruction('Enter the username "keli" and the password "x9".')
    assert instruction.distance(frozenset(("password",)), "x9") == 0
    assert instruction.distance(frozenset(("password",)), "keli") == 2.5
    assert instruction.distance(frozenset(("username",)), "x9") is None
    assert instruction.distance(frozenset(("username",)), "keli") == 0
    assert instruction.distance(frozenset(("username",)), "absent") is None


@given(st.text(max_size=200), st.text(max_size=40))
def test_no_text_breaks_it(text: str, other: str) -> None:
    instruction = Instruction(text)
    match = instruction.match(other)
    assert all(0.0 <= value <= 1.0 for value in (match.equals, match.contained, match.overlap, match.order))
    candidates = instruction.candidates(8)
    assert len(candidates) <= 8
    assert len(set(candidates)) == len(candidates)


@pytest.mark.parametrize(
    ("some", "others", "expected"),
    [
        ({"director"}, {"directed", "by"}, True),
        ({"year"}, {"from", "year"}, True),
        ({"year"}, {"years"}, False),
        ({"genre"}, {"search", "for"}, False),
        ({"pass"}, {"passport"}, False),
    ],
)
def test_akin_words_share_a_stem(some: set[str], others: set[str], expected: bool) -> None:
    assert akin(some, frozenset(others)) is expected


@pytest.mark.parametrize("span", ["h", "t", "to", "press", "c8J", "e."])
def test_plain_words_lose_the_span_and_nothing_else(span: str) -> None:
    plain = Instruction(f'Enter "{span}" into the text field and hit Submit.').plain_words
    assert plain == ("enter", "into", "the", "text", "field", "and", "hit", "submit")


def test_names_are_the_spans_or_what_looks_like_a_name() -> None:
    assert Instruction('Find the email by "Bianka" and forward it to Harriot.').names == ("Bianka", "Harriot")
    assert Instruction('Open the email by Georgena and reply "Magna in."').names == ("Magna in.", "Georgena")
    assert Instruction('Enter "a" and press Submit.').names == ("a",)
    assert Instruction("Select Karole by Monday.").names == ("Karole", "Monday")
    assert Instruction("Forward to Winnifred the email from Cherri.").names == ("Winnifred", "Cherri")
    assert Instruction("Select Joanna's email and delete.").names == ("Joanna",)
    assert "Joanna" in Instruction("Select Joanna's email and delete.").candidates(8)


def test_a_row_that_says_a_name_among_other_things_overlaps() -> None:
    instruction = Instruction("Forward to Winnifred the email from Cherri.")
    assert instruction.match("Cherri Magna. Morbi viverra a..").overlap == 0.75
    assert instruction.match("Cherrington Magna. Morbi viverra a..").overlap == 0.0
    assert instruction.match("Cherri").overlap == 1.0


def test_values_with_digits_in_attributes_are_names() -> None:
    instruction = Instruction("Click on the grid coordinate (1,-2).")
    fits = [
        instruction.match_attributes(f"{id} plot-point", "circle")
        for id in ("(1,-2)", "(-1,-2)", "(1,2)", "(1,-1)")
    ]
    assert fits == [1.0, 0.0, 0.0, 0.0]


def test_texts_that_start_and_end_as_asked_overlap() -> None:
    instruction = Instruction('Enter an item that starts with "Ni" and ends with "ia".')
    assert [instruction.match(t).overlap for t in ("Nicosia", "Nigeria", "Niger", "Austria")] == [
        0.75,
        0.75,
        0.0,
        0.0,
    ]
    assert Instruction('Choose what begins with "gr".').match("Green tea").overlap == 0.75
    assert Instruction('Start with "Ni".').match("").overlap == 0.0
