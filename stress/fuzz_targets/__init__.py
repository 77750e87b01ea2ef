"""What is fuzzed, one kind of file in each module: small valid files to start from, and what reads them."""
