"""The functions and operators that are built in, by theme: how they are called, typed and explained."""
