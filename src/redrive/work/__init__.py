"""What Redrive does: one verb a file. Built on the wire and the domain; knows no role."""
