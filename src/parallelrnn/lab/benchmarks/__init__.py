"""Comparisons with what users would pick instead, one file each."""
