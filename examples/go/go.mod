module uploader

go 1.27
