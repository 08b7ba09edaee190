"""Natural language: words, phrases and sentences, in the languages of its lists and by form in all others."""
