"""What every room stands on: files, memory, threads, random streams, progress."""
