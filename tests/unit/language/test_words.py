from drut.language.words import ENGLISH_WORDS, LANGUAGES_OF_WORD, SHARED_WORDS, fold


def test_the_lists_do_not_contradict_each_other() -> None:
    assert not ENGLISH_WORDS & SHARED_WORDS
    assert not (ENGLISH_WORDS | SHARED_WORDS) & LANGUAGES_OF_WORD.keys()


def test_homographs_are_no_evidence_of_english() -> None:
    homographs = "in is was i en man die test bil do come no me del has are will order account"
    assert not ENGLISH_WORDS & set(homographs.split())


def test_words_are_kept_in_the_form_they_are_looked_up_in() -> None:
    assert all(word == word.lower() for word in ENGLISH_WORDS | SHARED_WORDS)
    assert all(word == fold(word) for word in LANGUAGES_OF_WORD)


def test_words_without_accents_are_found() -> None:
    assert "es" in LANGUAGES_OF_WORD[fold("está")]
    assert LANGUAGES_OF_WORD[fold("nasıl")] == LANGUAGES_OF_WORD["nasil"] == ("tr",)
    assert fold("ł") == "l"
