"""The process, and what every room needs: signals, printing, limits, files, texts, versions. Knows no other room."""
