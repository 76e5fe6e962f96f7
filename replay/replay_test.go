package replay

import "encoding/binary"

var le = binary.LittleEndian
