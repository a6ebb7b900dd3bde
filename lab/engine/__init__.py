"""A real engine, llama.cpp, with a model that is made here: for tests, and for `make demo`."""
