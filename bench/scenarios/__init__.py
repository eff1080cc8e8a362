"""What is done with the systems. Each scenario checks that what came out is what went in."""
