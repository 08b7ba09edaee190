"""Natural language: words, phrases, sentences, prose and secrets, by word lists of some languages, by form in all."""
