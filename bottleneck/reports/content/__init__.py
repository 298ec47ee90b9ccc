"""What a report says, table by table, for every format."""
