"""The targets of the fuzzer, one kind of file in each module: small valid files to start from, and their readers."""
