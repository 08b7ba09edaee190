"""Natural language: words, phrases, sentences, prose and secrets, by lists of some languages, by form in all."""
